package hub

import (
	"context"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// Fetched notes that a client was answered with the ends of prompts, under one of
// the ids that it may have: its next socket must not be told them again.
func (h *Hub) Fetched(tenant string, clients, prompts []string) {
	keys := make([]stream.Key, len(clients))
	for n, client := range clients {
		keys[n] = stream.Key{Tenant: tenant, Client: client}
	}
	h.streams.Fetched(keys, prompts)
}

// delivered notes that a client has confirmed the end of its prompt.
func (h *Hub) delivered(k stream.Key, promptID string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	j, err := h.jobs.Find(ctx, k.Tenant, promptID)
	if err == nil && j.Key != "" {
		err = h.queue.DeliveredEnd(ctx, j.Key)
	}
	if err != nil {
		h.log().Debug("cannot note a delivered end", "error", err)
	}
}

// TellMissed gives a client that opens its socket the ends that it has not
// received and that this process does not remember, because an earlier one
// held its stream. Only what ended within the replay window is told.
func (h *Hub) TellMissed(ctx context.Context, k stream.Key) {
	if time.Since(h.since) > h.Settings().ReplayWindow {
		return // all that may be missed ended under this process
	}
	h.tellUndelivered(ctx, k, func(j job.Job) bool { return time.UnixMilli(j.FinishedAt).Before(h.since) })
}

// arrived gives a client whose socket has come here, perhaps from another hub,
// the ends of jobs that other hubs have run and did not hand over: a hub that
// was killed hands over nothing.
func (h *Hub) arrived(ctx context.Context, k stream.Key) {
	h.tellUndelivered(ctx, k, func(j job.Job) bool { return j.Run.Hub != h.boot })
}

func (h *Hub) tellUndelivered(ctx context.Context, k stream.Key, concerns func(job.Job) bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	jobs, err := h.queue.Undelivered(ctx, k.Tenant, k.Client)
	if err != nil {
		h.log().Debug("cannot look for undelivered ends", "error", err)
		return
	}
	for _, j := range jobs {
		if time.Since(time.UnixMilli(j.FinishedAt)) < h.Settings().ReplayWindow && concerns(j) {
			h.streams.Tell(k, j.ID, j.Key, rebuilt(ctx, h.queue, j)...)
		}
	}
}

const (
	// endGrace is how long the end of another hub's run may take on its way to
	// the hub that has the client's socket, before that looks for itself.
	endGrace = 3 * time.Second
	// endPatience is how often it looks while the messages of the run have
	// come and only their end is missing.
	endPatience = 5
)

// endedElsewhere sees to it that a client whose stream is held here gets the
// end of a job that another hub has run. That hub sends it; should it die
// before it has, the end is rebuilt from the history.
func (h *Hub) endedElsewhere(ctx context.Context, e queue.Event) {
	k := stream.KeyOf(e.Requester)
	if !h.streams.Holds(k) {
		return
	}
	for range endPatience {
		timer := time.NewTimer(endGrace)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		told, running := h.streams.Told(k, e.Key)
		if told {
			return
		}
		if !running {
			break
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	records, err := h.queue.EndedOf(ctx, []string{e.Key})
	if err != nil {
		h.log().Debug("cannot tell the end of another hub's job", "job", e.Key, "error", err)
		return
	}
	for _, r := range records {
		if !r.Delivered && h.streams.Holds(k) {
			h.streams.Tell(k, r.Job.ID, r.Job.Key, rebuilt(ctx, h.queue, r.Job)...)
		}
	}
}

// rebuilt are the messages of an ended job from its history entry; none where
// there is no entry any more.
func rebuilt(ctx context.Context, q *queue.Queue, j job.Job) []stream.Message {
	entry, err := q.HistoryEntry(ctx, j.Tenant, j.ID)
	if err != nil {
		return nil
	}
	raw, err := entry.JSON()
	if err != nil {
		return nil
	}
	return endFrames(j, raw)
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
