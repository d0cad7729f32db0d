package hub

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// Ends sees to it that every client gets the ends of its jobs, also those that it
// missed and those that another hub has run. They are rebuilt from the history.
type Ends struct {
	queue   *queue.Queue
	streams *stream.Streams
	// boot is this process among all hubs, since tells when it started.
	boot  string
	since func() time.Time
	// window is for how long after its end a job is told.
	window func() time.Duration
	log    func() *slog.Logger
}

// Fetched notes that a client was answered with the ends of prompts, under one of
// the ids that it may have: its next socket must not be told them again.
func (e *Ends) Fetched(tenant string, clients, prompts []string) {
	keys := make([]stream.Key, len(clients))
	for n, client := range clients {
		keys[n] = stream.Key{Tenant: tenant, Client: client}
	}
	e.streams.Fetched(keys, prompts)
}

// delivered notes that a client has confirmed the end of its prompt.
func (e *Ends) delivered(k stream.Key, promptID string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := e.queue.DeliveredEnd(ctx, k.Tenant, promptID); err != nil && !errors.Is(err, queue.ErrNotFound) {
		e.log().Debug("cannot note a delivered end", "error", err)
	}
}

// TellMissed gives a client that opens its socket the ends that it has not
// received and that this process does not remember, because an earlier one
// held its stream. Only what ended within the replay window is told.
func (e *Ends) TellMissed(ctx context.Context, k stream.Key) {
	if time.Since(e.since()) > e.window() {
		return // all that may be missed ended under this process
	}
	e.tellUndelivered(ctx, k, func(j job.Job) bool { return time.UnixMilli(j.FinishedAt).Before(e.since()) })
}

// arrived gives a client whose socket has come here, perhaps from another hub,
// the ends of jobs that other hubs have run and did not hand over: a hub that
// was killed hands over nothing.
func (e *Ends) arrived(ctx context.Context, k stream.Key) {
	e.tellUndelivered(ctx, k, func(j job.Job) bool { return j.Run.Hub != e.boot })
}

func (e *Ends) tellUndelivered(ctx context.Context, k stream.Key, concerns func(job.Job) bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	jobs, err := e.queue.Undelivered(ctx, k.Tenant, k.Client)
	if err != nil {
		e.log().Debug("cannot look for undelivered ends", "error", err)
		return
	}
	for _, j := range jobs {
		if time.Since(time.UnixMilli(j.FinishedAt)) < e.window() && concerns(j) {
			e.streams.EndedElsewhere(k, j.ID, j.Key, rebuilt(ctx, e.queue, j)...)
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
func (e *Ends) endedElsewhere(ctx context.Context, event queue.Event) {
	k := stream.KeyOf(event.Requester)
	if !e.streams.Holds(k) {
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
		told, running := e.streams.Told(k, event.Key)
		if told {
			return
		}
		if !running {
			break
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	records, err := e.queue.EndedOf(ctx, []string{event.Key})
	if err != nil {
		e.log().Debug("cannot tell the end of another hub's job", "job", event.Key, "error", err)
		return
	}
	for _, r := range records {
		if !r.Delivered && e.streams.Holds(k) {
			e.streams.EndedElsewhere(k, r.Job.ID, r.Job.Key, rebuilt(ctx, e.queue, r.Job)...)
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
