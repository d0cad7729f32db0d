package sim

import (
	"encoding/binary"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Binary frames begin with one of these, big-endian.
const (
	framePreview  = 1
	frameText     = 3
	frameMetadata = 4
)

// Formats of a type 1 frame.
const (
	formatJPEG = 1
	formatPNG  = 2
)

// preview is an encoded picture shown while a node runs.
type preview struct {
	format int
	data   []byte
}

func (v *preview) mime() string {
	if v.format == formatPNG {
		return "image/png"
	}
	return "image/jpeg"
}

// plain returns the frame for clients that announced nothing.
func (v *preview) plain() []byte {
	frame := binary.BigEndian.AppendUint32(nil, framePreview)
	frame = binary.BigEndian.AppendUint32(frame, uint32(v.format))
	return append(frame, v.data...)
}

// withMetadata returns the frame for clients that announced
// supports_preview_metadata.
func (v *preview) withMetadata(meta *pyjson.Object) []byte {
	text := pyjson.Marshal(meta)
	frame := binary.BigEndian.AppendUint32(nil, frameMetadata)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(text)))
	frame = append(frame, text...)
	return append(frame, v.data...)
}

// progressBoard holds the progress of each node of a run, as progress_state
// shows it. The run's lock guards it.
type progressBoard struct {
	order []string
	nodes map[string]*nodeProgress
}

type nodeProgress struct {
	value, max pyjson.Number
	state      string
	activity   string // what it spends time on, "" if nothing special
}

func (b *progressBoard) set(id string, value, limit pyjson.Number, state string) {
	if b.nodes == nil {
		b.nodes = map[string]*nodeProgress{}
	}
	if _, ok := b.nodes[id]; !ok {
		b.order = append(b.order, id)
	}
	activity := ""
	if known := b.nodes[id]; known != nil {
		activity = known.activity
	}
	b.nodes[id] = &nodeProgress{value, limit, state, activity}
}

// startProgress marks a node as running.
func (r *run) startProgress(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.board.set(id, "0.0", "1.0", "running")
	r.sendBoardLocked()
}

// setActivity says what a running node spends time on, "" for nothing special.
func (r *run) setActivity(id, activity string) {
	if !r.proc.feat.activity {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.board.nodes[id]; known != nil && known.activity != activity {
		known.activity = activity
		r.sendBoardLocked()
	}
}

// finishProgress marks a node as finished. A node that never started shows the
// integers it was created with.
func (r *run) finishProgress(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := pyjson.Number("1")
	if known, ok := r.board.nodes[id]; ok {
		limit = known.max
	}
	r.board.set(id, limit, limit, "finished")
	r.sendBoardLocked()
}

func (r *run) sendBoardLocked() {
	if !r.proc.feat.progressState {
		return
	}
	nodes := &pyjson.Object{}
	for _, id := range r.board.order {
		n := r.board.nodes[id]
		entry := dict("value", n.value, "max", n.max, "state", n.state, "node_id", id, "prompt_id", r.id,
			"display_node_id", r.display(id), "parent_node_id", r.parent(id), "real_node_id", r.real(id))
		if n.activity != "" {
			entry.Set("activity", pyjson.String(n.activity))
		}
		nodes.Set(id, entry)
	}
	r.proc.hub.publish(r.client, message("progress_state", dict("prompt_id", r.id, "nodes", nodes)))
}

// step reports progress of a node and, if there is one, a preview. Interrupts are
// noticed and faults happen at these calls.
func (r *run) step(id string, value, limit int, pic *preview) *exception {
	if exc := r.checkpoint(); exc != nil {
		return exc
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.board.set(id, pyjson.Int(int64(value)), pyjson.Int(int64(limit)), "running")
	r.sendBoardLocked()
	rich := pic != nil && r.proc.feat.progressState && r.proc.hub.supports(r.client, "supports_preview_metadata")
	if rich {
		r.proc.hub.publishBinary(r.client, pic.withMetadata(dict("node_id", id, "prompt_id", r.id, "display_node_id", r.display(id),
			"parent_node_id", r.parent(id), "real_node_id", r.real(id), "image_type", pic.mime())))
	}
	r.proc.hub.publish(r.client, message("progress", dict("value", value, "max", limit, "prompt_id", r.id, "node", id)))
	if pic != nil && !rich {
		r.proc.hub.publishBinary(r.client, pic.plain())
	}
	return nil
}
