package run

import (
	"fmt"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// outcome returns the end of a job as the queue stores it.
func (r result) outcome(reason string) queue.Outcome {
	return queue.Outcome{State: r.state, Entry: r.entry, Summary: comfyui.SummarizeStored(r.entry), Reason: reason}
}

// failure says in one line why a job failed.
func (r result) failure() string {
	for _, text := range r.messages {
		if m, ok := comfyui.ParseMessage(text); ok && m.Type == comfyui.TypeExecutionError {
			reason := strings.TrimSpace(m.String("exception_message"))
			if class := m.String("node_type"); class != "" {
				reason = class + ": " + reason
			}
			return reason
		}
	}
	return ""
}

// maxWhy bounds what the record of a failed job says of its error, in bytes: nodes raise errors of
// any length. The history entry has the whole.
const maxWhy = 2000

// why returns the beginning of failure, "" for a job that did not fail.
func (r result) why() string {
	text := r.failure()
	if r.state != job.Failed || len(text) <= maxWhy {
		return strings.ToValidUTF8(text, "?")
	}
	return strings.ToValidUTF8(text[:maxWhy], "") + "…"
}

// frames returns the last messages as the stream takes them.
func (r result) frames() []stream.Message {
	out := make([]stream.Message, len(r.messages))
	for i, m := range r.messages {
		out[i] = stream.Text(m)
	}
	return out
}

// errorEnding ends a job that no instance could finish the way ComfyUI shows a failed run: with
// execution_error in the history and on the socket. The hub reports the error in place of an
// instance: the instance refused the prompt, was lost with it too often, or never turned up.
func errorEnding(j job.Job, body job.Body, f comfyui.Failure, now time.Time) result {
	if f.NodeID == "" && len(body.Outputs) > 0 {
		f.NodeID = body.Outputs[0] // older frontends show nothing for an error without a node
	}
	f.NodeType = comfyui.ClassOf(body.Prompt, f.NodeID)
	return ownEnding(j, body, job.Failed, comfyui.ExecutionError(j.ID, f, now), now)
}

// Unrun is the end of a job that no instance was given: failed, as the queue stores it with a reason,
// and the last messages to its client.
func Unrun(j job.Job, body job.Body, why comfyui.Failure, reason string) (queue.Outcome, []stream.Message) {
	end := errorEnding(j, body, why, time.Now())
	return end.outcome(reason), end.frames()
}

// exhausted describes a job that no instance could finish, with the reasons of all attempts.
func exhausted(j job.Job) comfyui.Failure {
	message := "No instance could finish this prompt."
	if j.Kills >= queue.MaxKills {
		message = fmt.Sprintf("This prompt is quarantined: %d instances died while they ran it.", j.Kills)
	}
	return comfyui.Failure{
		Type:      "RuntimeError",
		Message:   message + "\n" + strings.Join(j.Lost, "\n"),
		Traceback: j.Lost,
	}
}

// cancelEnding ends a job that was cancelled before an instance could say so.
func cancelEnding(j job.Job, body job.Body, now time.Time) result {
	node := ""
	if len(body.Outputs) > 0 {
		node = body.Outputs[0]
	}
	end := comfyui.ExecutionInterrupted(j.ID, node, comfyui.ClassOf(body.Prompt, node), nil, now)
	return ownEnding(j, body, job.Cancelled, end, now)
}

// ownEnding is an ending for which no instance has a record.
func ownEnding(j job.Job, body job.Body, state job.State, end []byte, now time.Time) result {
	began := now
	if at := time.UnixMilli(j.StartedAt); j.StartedAt > 0 && at.Before(now) { // Redis's clock may be ahead
		began = at
	}
	start := comfyui.ExecutionStart(j.ID, began)
	parts := comfyui.EntryParts{
		Number: j.Number, ID: j.ID, Graph: body.Prompt, Extra: body.Extra, Outputs: body.Outputs,
		Success: state == job.Done, Messages: onRecord(start, end),
	}
	return result{kind: jobEnded, state: state, entry: comfyui.NewEntry(parts), messages: [][]byte{end}}
}

// onRecord returns messages as a history entry keeps them.
func onRecord(frames ...[]byte) (messages []comfyui.EntryMessage) {
	for _, raw := range frames {
		if m, ok := comfyui.ParseMessage(raw); ok {
			messages = append(messages, comfyui.EntryMessage{Type: m.Type, Data: m.Data})
		}
	}
	return messages
}

// stateOf returns the state a job ends in, given the last message of its run.
func stateOf(end string) job.State {
	switch end {
	case comfyui.TypeExecutionSuccess:
		return job.Done
	case comfyui.TypeExecutionInterrupted:
		return job.Cancelled
	default:
		return job.Failed
	}
}
