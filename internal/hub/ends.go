package hub

import (
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// find is the newest job of an id, or a zero one.
func (h *Hub) find(ctx context.Context, tenant, id string) (job.Job, error) {
	j, err := h.queue.Find(ctx, tenant, id)
	if errors.Is(err, queue.ErrNotFound) {
		return job.Job{}, nil
	}
	return j, err
}

// delivered notes that a client has confirmed the end of its prompt.
func (h *Hub) delivered(k stream.Key, promptID string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	j, err := h.find(ctx, k.Tenant, promptID)
	if err == nil && j.Key != "" {
		err = h.queue.DeliveredEnd(ctx, j.Key)
	}
	if err != nil {
		h.log().Debug("cannot note a delivered end", "error", err)
	}
}

// missed gives a client that opens its socket the ends that it has not
// received and that this process does not remember, because an earlier one
// held its stream. Only what ended within the replay window is told.
func (h *Hub) missed(ctx context.Context, k stream.Key) {
	window := h.settings().ReplayWindow
	if time.Since(h.since) > window {
		return // all that may be missed ended under this process
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	jobs, err := h.queue.Undelivered(ctx, k.Tenant, k.Client)
	if err != nil {
		h.log().Debug("cannot look for undelivered ends", "error", err)
		return
	}
	for _, j := range jobs {
		ended := time.UnixMilli(j.FinishedAt)
		if time.Since(ended) < window && ended.Before(h.since) {
			h.tellEnd(ctx, j)
		}
	}
}

// endedElsewhere tells a client whose socket is here the end of a job that
// another hub has run. Its progress was that hub's to show; the end must not
// be missed anywhere.
func (h *Hub) endedElsewhere(e queue.Event) {
	k := stream.Key{Tenant: e.Tenant, Client: e.Client}
	if !h.streams.Connected(k) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	j, err := h.queue.Get(ctx, e.Key)
	if err != nil {
		h.log().Debug("cannot tell the end of another hub's job", "job", e.Key, "error", err)
		return
	}
	h.tellEnd(ctx, j)
}

// tellEnd rebuilds the messages of an ended job from its history entry.
func (h *Hub) tellEnd(ctx context.Context, j job.Job) {
	entry, err := h.queue.HistoryEntry(ctx, j.Tenant, j.ID)
	if err != nil {
		return
	}
	raw, err := entry.JSON()
	if err != nil {
		return
	}
	h.streams.Ended(stream.Key{Tenant: j.Tenant, Client: j.Client}, j.ID, endFrames(j, raw)...)
}

// endFrames are the messages of an ended job as its history entry tells them:
// start, outputs, end. Progress is not kept and nobody needs it.
func endFrames(j job.Job, entry []byte) []stream.Message {
	parsed, ok := comfyui.ParseEntry(entry)
	if !ok {
		return nil
	}
	var out []stream.Message
	var last *stream.Message
	for _, m := range parsed.Messages {
		frame := stream.Text([]byte(`{"type": "` + m.Type + `", "data": ` + string(m.Data) + `}`))
		switch m.Type {
		case comfyui.TypeExecutionSuccess, comfyui.TypeExecutionError, comfyui.TypeExecutionInterrupted:
			last = &frame
		default:
			out = append(out, frame)
		}
	}
	for _, data := range comfyui.ExecutedFromOutputs(parsed.Outputs, j.ID) {
		out = append(out, stream.Text(data))
	}
	if last != nil {
		out = append(out, *last)
	}
	return out
}
