package run

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// relay passes one message from the instance on to the client and reports whether it was the run's
// last.
func (r following) relay(ctx context.Context, f comfyui.Frame) (ended bool) {
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
	if j.Parent != "" && r.body.Targets != nil { // the nodes of a batch's parts are all the same
		r.d.Runs.overheard(j, m, data)
	}
	switch m.Type {
	case comfyui.TypeExecutionCached:
		r.cached = m.Strings("nodes")
		showing(r).send(stream.Other, m.Node, data)
	case comfyui.TypeExecutionStart:
		r.begin(ctx, time.Now())
		showing(r).send(stream.Other, "", data)
		showing(r).runsAgain()
	case comfyui.TypeExecutionSuccess, comfyui.TypeExecutionInterrupted:
		r.timing.enters("", time.Now())
		showing(r).hold(data)
	case comfyui.TypeExecutionError:
		if m.String("exception_type") == "ExecutionBlocked" {
			showing(r).send(stream.Other, "", data) // the run goes on and ends with success
			return false
		}
		showing(r).hold(data)
	case comfyui.TypeExecuting:
		if m.Ends() {
			r.timing.enters("", time.Now())
			return true
		}
		r.node = m.Shows()
		r.timing.enters(r.node, time.Now())
		r.tellNode()
		showing(r).entering(m, data)
	case comfyui.TypeProgress:
		r.progressed(m)
		showing(r).send(stream.Progress, m.Node, data)
	case comfyui.TypeProgressState:
		showing(r).advancing(data)
	case comfyui.TypeExecuted:
		if r.division != nil || j.Parent != "" {
			r.missed.outputs = true // the client gets them together with those of the other parts
			return false
		}
		renamed, err := r.files.rename(data, unseen{cached: slices.Contains(r.cached, m.Node)})
		if err != nil {
			r.missed.outputs = true // collect shows it when Redis or the instance is back
			r.log.Warn("cannot register an output yet; it will appear later", "error", err)
			return false
		}
		r.shown[m.Node] = true
		showing(r).send(stream.Other, m.Node, renamed)
	default:
		showing(r).send(stream.Other, m.Node, data)
	}
	return false
}

// relayBinary passes on a picture or a text. Frames of an output node are results that exist
// nowhere else; those of other nodes are previews.
func (r following) relayBinary(frame []byte) {
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
	showing(r).sendMessage(stream.Message{Kind: kind, Node: node, Binary: true, Data: frame})
}

// begin notes that the instance is executing the prompt, and shows the client the run.
func (r following) begin(ctx context.Context, at time.Time) {
	if r.phase >= executing {
		return
	}
	r.phase, r.startedAt = executing, at
	r.trace.Started()
	showing(r).openStream(ctx)
	r.begun()
	if r.wish != wanted {
		r.interrupt(ctx) // servers ignore one that comes before the start
	}
}

// resume opens the client's sequence for a run whose beginning this hub did not see.
func (r following) resume(ctx context.Context) {
	j, at := r.Job(), time.Now()
	if j.StartedAt > 0 {
		at = r.d.Queue.Clock().When(j.StartedAt)
	}
	r.begin(ctx, at)
	r.missed.messages = true
	showing(r).send(stream.Other, "", comfyui.ExecutionStart(j.ID, at))
}

// progressed notes the progress of a run in the queue, at most once a second.
func (r following) progressed(m comfyui.Message) {
	top := m.Float("max")
	if top <= 0 {
		return
	}
	fraction := min(max(m.Float("value")/top, 0), 1)
	r.doing.progressed(fraction)
	if r.doing.classless() && r.d.Elsewhere.Watched() {
		r.tellNode()
	}
	if time.Since(r.noted) < time.Second {
		return
	}
	r.noted = time.Now()
	r.beside("noting the progress of a run", func() { _ = r.d.Queue.Progress(r.d.Ctx, r.Lease(), fraction) })
	conn := r.conn
	r.beside("reading how much memory a run takes", func() { r.weigh(r.d.Ctx, conn) })
}

// weigh asks the instance how much GPU memory its process has taken for the run, if others use the
// same GPU.
func (r following) weigh(ctx context.Context, conn *instance.Link) {
	i, known := r.d.Fleet.Instance(conn.Name)
	if !known || i.Report.OthersMemory == 0 && !r.d.Reports.SharesGPU(i) || !r.weighing.CompareAndSwap(false, true) {
		return
	}
	defer r.weighing.Store(false)
	ctx, cancel := context.WithTimeout(ctx, weighTimeout)
	defer cancel()
	stats, err := conn.Client.SystemStats(ctx)
	if err != nil || len(stats.Devices) == 0 {
		return
	}
	took := min(stats.Devices[0].TorchTotal, stats.Devices[0].VRAMTotal)
	for {
		peak := r.peak.Load()
		if took <= peak || r.peak.CompareAndSwap(peak, took) {
			return
		}
	}
}

// weighTimeout bounds the question; an instance that is loading a model answers late.
const weighTimeout = 10 * time.Second
