package dispatch

import (
	"fmt"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// ending is how a job ends for its client: the state, the history entry, and the messages that come
// before status and executing null.
type ending struct {
	state    job.State
	entry    []byte
	messages [][]byte
}

// outcome returns the ending as the queue stores it.
func (e ending) outcome(reason string) queue.Outcome {
	return queue.Outcome{State: e.state, Entry: e.entry, Summary: comfyui.SummarizeStored(e.entry), Reason: reason}
}

// reason says in one line why a job failed.
func (e ending) reason() string {
	for _, text := range e.messages {
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

// why returns the beginning of reason, "" for a job that did not fail.
func (e ending) why() string {
	text := e.reason()
	if e.state != job.Failed || len(text) <= maxWhy {
		return strings.ToValidUTF8(text, "?")
	}
	return strings.ToValidUTF8(text[:maxWhy], "") + "…"
}

// frames returns the ending's messages as the stream takes them.
func (e ending) frames() []stream.Message {
	out := make([]stream.Message, len(e.messages))
	for i, m := range e.messages {
		out[i] = stream.Text(m)
	}
	return out
}

// hubError is an error that the hub reports in place of an instance: the instance refused the
// prompt, was lost with it too often, or never turned up.
type hubError struct {
	// kind is an exception_type, a Python class name.
	kind    string
	message string
	// node is where it happened, "" if the error is about the whole prompt.
	node      string
	traceback []string
}

// errorEnding ends a job that no instance could finish the way ComfyUI shows a failed run: with
// execution_error in the history and on the socket.
func errorEnding(j job.Job, body job.Body, t hubError, now time.Time) ending {
	node := t.node
	if node == "" && len(body.Outputs) > 0 {
		node = body.Outputs[0] // older frontends show nothing for an error without a node
	}
	end := comfyui.ExecutionError(j.ID, comfyui.Failure{
		NodeID: node, NodeType: comfyui.ClassOf(body.Prompt, node),
		Message: t.message, Type: t.kind, Traceback: t.traceback,
	}, now)
	return ownEnding(j, body, job.Failed, end, now)
}

// exhausted describes a job that no instance could finish, with the reasons of all attempts.
func exhausted(j job.Job) hubError {
	message := "No instance could finish this prompt."
	if j.Kills >= queue.MaxKills {
		message = fmt.Sprintf("This prompt is quarantined: %d instances died while they ran it.", j.Kills)
	}
	return hubError{
		kind:      "RuntimeError",
		message:   message + "\n" + strings.Join(j.Lost, "\n"),
		traceback: j.Lost,
	}
}

// cancelEnding ends a job that was cancelled before an instance could say so.
func cancelEnding(j job.Job, body job.Body, now time.Time) ending {
	node := ""
	if len(body.Outputs) > 0 {
		node = body.Outputs[0]
	}
	end := comfyui.ExecutionInterrupted(j.ID, node, comfyui.ClassOf(body.Prompt, node), nil, now)
	return ownEnding(j, body, job.Cancelled, end, now)
}

// ownEnding is an ending for which no instance has a record.
func ownEnding(j job.Job, body job.Body, state job.State, end []byte, now time.Time) ending {
	began := now
	if at := time.UnixMilli(j.StartedAt); j.StartedAt > 0 && at.Before(now) { // Redis's clock may be ahead
		began = at
	}
	start := comfyui.ExecutionStart(j.ID, began)
	parts := comfyui.EntryParts{
		Number: j.Number, ID: j.ID, Graph: body.Prompt, Extra: body.Extra, Outputs: body.Outputs,
		Success: state == job.Done,
	}
	for _, raw := range [][]byte{start, end} {
		if m, ok := comfyui.ParseMessage(raw); ok {
			parts.Messages = append(parts.Messages, comfyui.EntryMessage{Type: m.Type, Data: m.Data})
		}
	}
	return ending{state: state, entry: comfyui.NewEntry(parts), messages: [][]byte{end}}
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
