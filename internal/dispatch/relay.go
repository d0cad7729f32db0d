package dispatch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// relay passes one message from the instance on to the client and reports whether it was the run's
// last.
func (r *run) relay(ctx context.Context, f comfyui.Frame) (ended bool) {
	if f.Binary {
		r.heard = time.Now()
		r.relayBinary(f.Data)
		return false
	}
	m, ok := comfyui.ParseMessage(f.Data)
	if !ok || m.Type == comfyui.TypeStatus || m.Type == comfyui.TypeFeatureFlags {
		return false // the hub has its own
	}
	if m.PromptID == "" && strings.HasPrefix(m.Type, comfyui.AssetMessages) {
		return false // a scan of the instance's disk: nothing of the run, and no sign of its life
	}
	if m.PromptID == "" && m.Type == comfyui.TypeExecuting {
		return false // sent to a socket that reconnects in the middle of a run
	}
	if m.PromptID == "" && r.phase < executing && m.Type != comfyui.TypeExecutionStart {
		return false // about the run before this one
	}
	j := r.Job()
	if m.PromptID != "" && m.PromptID != j.Run.Upstream {
		return false // another prompt's, such as one that was given up here before
	}
	if r.phase < executing && m.Type != comfyui.TypeExecutionStart && m.PromptID != "" {
		r.resume(ctx) // its start was missed
	}
	if !r.conn.Background.Has(m) {
		r.heard = time.Now()
	}
	if r.division.planted(m) {
		return false
	}
	data := r.division.hide(comfyui.RewriteID(f.Data, j.Run.Upstream, j.ID))
	r.transcript.note(m.Type, data)
	switch m.Type {
	case comfyui.TypeExecutionCached:
		r.cached = m.Strings("nodes")
		r.send(stream.Other, m.Node, data)
	case comfyui.TypeExecutionStart:
		r.begin(ctx, time.Now())
		r.send(stream.Other, "", data)
		r.runsAgain()
	case comfyui.TypeExecutionSuccess, comfyui.TypeExecutionInterrupted:
		r.hold(data)
	case comfyui.TypeExecutionError:
		if m.String("exception_type") == "ExecutionBlocked" {
			r.send(stream.Other, "", data) // the run goes on and ends with success
			return false
		}
		r.hold(data)
	case comfyui.TypeExecuting:
		if m.Ends() {
			return true
		}
		r.node = m.Shows()
		r.tellNode()
		r.send(stream.Executing, m.Node, data)
	case comfyui.TypeProgress:
		r.progressed(m)
		r.send(stream.Progress, m.Node, data)
	case comfyui.TypeProgressState:
		r.send(stream.ProgressState, "", data)
	case comfyui.TypeExecuted:
		if r.division != nil || j.Parent != "" {
			r.missed.outputs = true // the client gets them together with those of the other parts
			return false
		}
		renamed, err := r.files.rename(data, slices.Contains(r.cached, m.Node))
		if err != nil {
			r.missed.outputs = true // collect shows it when Redis or the instance is back
			r.log.Warn("cannot register an output yet; it will appear later", "error", err)
			return false
		}
		r.shown[m.Node] = true
		r.send(stream.Other, m.Node, renamed)
	default:
		r.send(stream.Other, m.Node, data)
	}
	return false
}

// runsAgain tells a person at a web UI why the prompt is starting again: its last run was lost. The
// text appears at the node that saves.
func (r *run) runsAgain() {
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
func (r *run) runsNoMore() {
	if len(r.Job().Lost) > 0 && len(r.body.Outputs) > 0 {
		r.note(" ")
	}
}

func (r *run) note(text string) {
	node := r.body.Outputs[0]
	r.sendMessage(stream.Message{Kind: stream.Note, Node: node, Binary: true, Data: comfyui.NodeText(node, text)})
}

// relayBinary passes on a picture or a text. Frames of an output node are results that exist
// nowhere else; those of other nodes are previews.
func (r *run) relayBinary(frame []byte) {
	b, ok := comfyui.ParseBinary(frame)
	if !ok || r.phase < executing {
		return
	}
	j, kind, node := r.Job(), stream.Other, b.Node
	switch b.Event {
	case comfyui.EventPreview, comfyui.EventPreviewMetadata:
		if b.PromptID != "" && b.PromptID != j.Run.Upstream {
			return
		}
		kind = stream.Preview
		r.doing.shows(b)
		if node == "" {
			node = r.node
		}
		if slices.Contains(r.results, r.node) {
			kind = stream.Result
		}
		frame = comfyui.RewritePreview(frame, j.Run.Upstream, j.ID)
	}
	r.sendMessage(stream.Message{Kind: kind, Node: node, Binary: true, Data: frame})
}

func (r *run) send(kind stream.Kind, node string, data []byte) {
	r.sendMessage(stream.Message{Kind: kind, Node: node, Data: data})
}

func (r *run) sendMessage(m stream.Message) {
	if r.out != nil {
		r.out.Send(m)
	}
}

// hold keeps back the run's last message until the job is off the queue and readable in the
// history: clients ask at once. The first one counts: on a run that the hub interrupted, that is
// the hub's own kind.
func (r *run) hold(data []byte) {
	if r.end == nil {
		r.end, r.endedAt = data, time.Now()
	}
}

// begin notes that the instance is executing the prompt, and shows the client the run.
func (r *run) begin(ctx context.Context, at time.Time) {
	if r.phase >= executing {
		return
	}
	r.phase, r.startedAt = executing, at
	r.trace.Started()
	r.openStream(ctx)
	r.begun()
	if r.wish != wanted {
		r.interrupt(ctx) // servers ignore one that comes before the start
	}
}

// openStream opens the client's sequence.
func (r *run) openStream(ctx context.Context) {
	j := r.Job()
	k := stream.KeyOf(j.Requester)
	if j.Parent == "" {
		// Another hub may have accepted it, for a client that has yet to connect.
		r.d.streams.Posted(k, r.d.queue.Clock().When(j.CreatedAt))
	}
	if r.wish != withdrawn && j.Parent == "" {
		r.out = r.d.streams.Begin(k, stream.Attempt{Prompt: j.ID, Job: j.Key, Fence: j.Fence})
	}
	err := r.d.queue.Started(ctx, r.lease())
	switch {
	case errors.Is(err, queue.ErrWithdrawn):
		r.withdraw()
	case errors.Is(err, queue.ErrCancelled):
		r.wish = max(r.wish, cancelled) // it was cancelled between the claim and the moment when this run could be told
	case err != nil:
		r.log.Debug("cannot record the start", "error", err) // a later renewal makes up for it
	}
	r.d.streams.StatusChanged(j.Caller)
}

// resume opens the client's sequence for a run whose beginning this hub did not see.
func (r *run) resume(ctx context.Context) {
	j, at := r.Job(), time.Now()
	if j.StartedAt > 0 {
		at = r.d.queue.Clock().When(j.StartedAt)
	}
	r.begin(ctx, at)
	r.missed.messages = true
	r.send(stream.Other, "", comfyui.ExecutionStart(j.ID, at))
}

// catchUp shows the outputs whose messages were missed, so that the client's sequence is complete:
// many clients take results only from there.
func (r *run) catchUp(outputs []byte) {
	for _, frame := range comfyui.ExecutedFromOutputs(outputs, r.Job().ID) {
		if m, ok := comfyui.ParseMessage(frame); ok && !r.shown[m.Node] {
			r.send(stream.Other, m.Node, frame)
		}
	}
}

// progressed notes the progress of a run in the queue, at most once a second.
func (r *run) progressed(m comfyui.Message) {
	top := m.Float("max")
	if top <= 0 {
		return
	}
	fraction := min(max(m.Float("value")/top, 0), 1)
	r.doing.progressed(fraction)
	if r.doing.classless() && r.d.instances.watched.any() {
		r.tellNode()
	}
	if time.Since(r.noted) < time.Second {
		return
	}
	r.noted = time.Now()
	r.beside("noting the progress of a run", func() { _ = r.d.queue.Progress(r.d.ctx, r.lease(), fraction) })
	conn := r.conn
	r.beside("reading how much memory a run takes", func() { r.weigh(r.d.ctx, conn) })
}
