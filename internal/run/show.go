package run

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// runsAgain tells a person at a web UI why the prompt is starting again: its last run was lost. The
// text appears at the node that saves.
func (r showing) runsAgain() {
	lost := r.Job().Lost
	if len(lost) == 0 || len(r.body.Outputs) == 0 {
		return
	}
	attempt, reason, _ := strings.Cut(lost[len(lost)-1], ": ")
	if reason, _, _ = strings.Cut(reason, ": "); reason == "" || strings.ContainsAny(reason, ":/") {
		reason = "it was lost" // the rest may give away an address
	}
	r.note("Runs again: " + attempt + ", " + reason)
}

// runsNoMore removes the text that runsAgain showed, perhaps on another hub. A web UI ignores an
// empty text, so it sends a space.
func (r showing) runsNoMore() {
	if len(r.Job().Lost) > 0 && len(r.body.Outputs) > 0 {
		r.note(" ")
	}
}

func (r showing) note(text string) {
	node := r.body.Outputs[0]
	r.sendMessage(stream.Message{Kind: stream.Note, Node: node, Binary: true, Data: comfyui.NodeText(node, text)})
}

func (r showing) send(kind stream.Kind, node string, data []byte) {
	r.sendMessage(stream.Message{Kind: kind, Node: node, Data: data})
}

func (r showing) sendMessage(m stream.Message) {
	if r.out != nil {
		r.out.Send(m)
	}
}

// hold keeps back the run's last message until the job is off the queue and readable in the
// history: clients ask at once. The first one counts: on a run that the hub interrupted, that is
// the hub's own kind.
func (r showing) hold(data []byte) {
	if r.end == nil {
		r.end, r.endedAt = data, time.Now()
	}
}

// openStream opens the client's sequence.
func (r showing) openStream(ctx context.Context) {
	j := r.Job()
	k := stream.KeyOf(j.Requester)
	if j.Parent == "" {
		// Another hub may have accepted it, for a client that has yet to connect.
		r.d.Streams.Posted(k, r.d.Queue.Clock().When(j.CreatedAt))
	}
	if r.wish != withdrawn && j.Parent == "" {
		r.out = r.d.Streams.Begin(k, stream.Attempt{Prompt: j.ID, Job: j.Key, Fence: j.Fence})
	}
	err := r.d.Queue.Started(ctx, r.Lease())
	switch {
	case errors.Is(err, queue.ErrWithdrawn):
		r.withdraw()
	case errors.Is(err, queue.ErrCancelled):
		r.wish = max(r.wish, cancelled) // it was cancelled between the claim and the moment when this run could be told
	case err != nil:
		r.log.Debug("cannot record the start", "error", err) // a later renewal makes up for it
	}
	r.d.Streams.Statuses.Changed(j.Caller)
}

// catchUp shows the outputs whose messages were missed, so that the client's sequence is complete:
// many clients take results only from there.
func (r showing) catchUp(outputs []byte) {
	for _, frame := range comfyui.ExecutedFromOutputs(outputs, r.Job().ID) {
		if m, ok := comfyui.ParseMessage(frame); ok && !r.shown[m.Node] {
			r.send(stream.Other, m.Node, frame)
		}
	}
}

// withdraw shows the client nothing more of the run: the client has withdrawn the job.
func (r showing) withdraw() {
	r.wish = withdrawn
	r.lose()
}

// lose takes back what the client was shown of the run.
func (r showing) lose() {
	if r.out != nil {
		r.out.Lose()
		r.out = nil
	}
}

// transcribed returns the record of the run that the instance should have; false if that cannot be
// known.
func (r showing) transcribed() (entry []byte, ok bool) {
	if r.missed.messages || r.end == nil || r.transcript.size > maxTranscript {
		return nil, false
	}
	end, ok := comfyui.ParseMessage(r.end)
	if !ok {
		return nil, false
	}
	j := r.Job()
	return comfyui.NewEntry(comfyui.EntryParts{
		Number: j.Number, ID: j.ID, Graph: r.body.Prompt, Extra: r.body.Extra, Outputs: r.body.Outputs,
		Success: end.Type == comfyui.TypeExecutionSuccess, Messages: r.transcript.messages, Results: r.transcript.results,
	}), true
}
