// Package ends makes sure that clients are told the ends of their jobs, by whichever hub.
package ends

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// Ends makes sure that every client gets the ends of its jobs, including those that it missed and
// those that another hub has run. They are rebuilt from the history.
type Ends struct {
	Queue   *queue.Queue
	Streams *stream.Streams
	// Boot identifies this process among all hubs, and since tells when it started.
	Boot  string
	Since func() time.Time
	// Window is for how long after its end a job is told.
	Window func() time.Duration
	Log    func() *slog.Logger

	// Confirmed are confirmed ends that Redis does not know about yet.
	Confirmed *Confirmations

	// Looking is held during a look, which uses old.
	Looking *semaphore.Weighted
	// Old is, for each present client, the turn of its last end that is too old to be told.
	Old map[stream.Key]int64
}

const (
	// lookPause is the pause between two looks for lost ends.
	lookPause = 5 * time.Second
	// looksAt is how many of a client's last ends a look considers.
	looksAt = 32
)

// Watch looks for lost ends until ctx ends. Whatever else brings an end to its client (messages of
// hubs, hints, one question when its socket opens) fails when hubs die and Redis is away in
// between.
func (e *Ends) Watch(ctx context.Context) {
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := e.look(ctx); err != nil && ctx.Err() == nil {
			e.Log().Debug("cannot look for undelivered ends", "error", err)
		}
	}
}

// look tells clients that have a socket here the ends that nobody has told them, and tells Redis
// the confirmations that it has missed.
func (e *Ends) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := e.Looking.Acquire(ctx, 1); err != nil {
		return err
	}
	defer e.Looking.Release(1)
	if err := e.Confirmed.flush(ctx); err != nil {
		return err
	}
	present := e.Streams.Present()
	clients := make([]job.Requester, len(present))
	for i, k := range present {
		clients[i] = job.Requester{Tenant: k.Tenant, Client: k.Client}
	}
	ends, err := e.Queue.Unconfirmed(ctx, clients, looksAt)
	if err != nil {
		return err
	}
	old := map[stream.Key]int64{}
	for i, client := range present {
		k := client.Key
		before := e.Old[k]
		if len(ends[i]) == 0 || ends[i][0].Turn < before {
			before = 0 // Redis has lost its last writes
		}
		if before, err = e.LookAt(ctx, client, ends[i], before); err != nil {
			return err
		}
		if before > 0 {
			old[k] = before
		}
	}
	e.Old = old
	return nil
}

// LookAt tells a client those of its last ends that are later than old and that nobody has told it,
// if they were recent enough when it opened its socket: a client that is waiting all along is told
// however long that takes. It returns the last one that is too old.
func (e *Ends) LookAt(ctx context.Context, client stream.Present, ends []queue.Unconfirmed, old int64) (int64, error) {
	k := client.Key
	turns, keys := map[string]int64{}, []string(nil)
	for _, end := range slices.Backward(ends) {
		if told, _ := e.Streams.Told(k, end.Key); !told && end.Turn > old {
			turns[end.Key] = end.Turn
			keys = append(keys, end.Key)
		}
	}
	if len(keys) == 0 {
		return old, nil
	}
	records, err := e.Queue.EndedOf(ctx, keys)
	if err != nil {
		return old, err
	}
	for _, r := range records {
		finished := e.Queue.Clock().When(r.Job.FinishedAt)
		told, running := e.Streams.Told(k, r.Job.Key)
		patience := EndGrace
		if running { // its messages are coming, and its end is the last one
			patience *= EndPatience
		}
		switch {
		case client.Since.Sub(finished) >= e.Window():
			old = max(old, turns[r.Job.Key])
		case told, r.Delivered, time.Since(finished) < patience:
		default:
			e.tell(ctx, k, r.Job)
		}
	}
	return old, nil
}

// Fetched notes that a client was answered with the ends of prompts, under one of the ids that it
// may have: its next socket must not be told them again.
func (e *Ends) Fetched(tenant string, clients, prompts []string) {
	keys := make([]stream.Key, len(clients))
	for n, client := range clients {
		keys[n] = stream.Key{Tenant: tenant, Client: client}
	}
	e.Streams.Fetched(keys, prompts)
}

// Delivered notes that a client has confirmed the end of its prompt.
func (e *Ends) Delivered(k stream.Key, promptID string) {
	e.Confirmed.add(queue.Confirmed{Tenant: k.Tenant, ID: promptID})
}

// TellMissed tells a client that opens its socket the ends that it has not received and that this
// process does not remember, because an earlier one held its stream. Only jobs that ended within
// the replay window are told.
func (e *Ends) TellMissed(ctx context.Context, k stream.Key) {
	if time.Since(e.Since()) > e.Window() {
		return // anything that may have been missed ended under this process
	}
	e.tellUndelivered(ctx, k, func(j job.Job) bool { return e.Queue.Clock().When(j.FinishedAt).Before(e.Since()) })
}

// Arrived tells a client whose socket has come here, perhaps from another hub, the ends of jobs
// that other hubs have run and did not hand over: a hub that was killed hands over nothing.
func (e *Ends) Arrived(ctx context.Context, k stream.Key) {
	e.tellUndelivered(ctx, k, func(j job.Job) bool { return j.Run.Hub != e.Boot })
}

func (e *Ends) tellUndelivered(ctx context.Context, k stream.Key, concerns func(job.Job) bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	jobs, err := e.Queue.Undelivered(ctx, k.Tenant, k.Client)
	if err != nil {
		e.Log().Debug("cannot look for undelivered ends", "error", err)
		return
	}
	for _, j := range jobs {
		if time.Since(e.Queue.Clock().When(j.FinishedAt)) < e.Window() && concerns(j) {
			e.tell(ctx, k, j)
		}
	}
}

const (
	// EndGrace is how long the end of another hub's run may be on its way to the hub that has the
	// client's socket before that hub looks for itself.
	EndGrace = 3 * time.Second
	// EndPatience is how often it looks while the messages of the run have arrived and only their
	// end is missing.
	EndPatience = 5
)

// EndedElsewhere makes sure that a client whose stream is held here gets the end of a job that
// another hub has run. That hub sends it; if it dies first, the end is rebuilt from the history.
func (e *Ends) EndedElsewhere(ctx context.Context, event queue.Event) {
	k := stream.KeyOf(event.Requester)
	if !e.Streams.Holds(k) {
		return
	}
	for range EndPatience {
		timer := time.NewTimer(EndGrace)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		told, running := e.Streams.Told(k, event.Key)
		if told {
			return
		}
		if !running {
			break
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	records, err := e.Queue.EndedOf(ctx, []string{event.Key})
	if err != nil {
		e.Log().Debug("cannot announce the end of another hub's job", "job", event.Key, "error", err)
		return
	}
	for _, r := range records {
		if !r.Delivered && e.Streams.Holds(k) {
			e.tell(ctx, k, r.Job)
		}
	}
}

// tell sends a client the end of a job as the history has it, if that can be told now; otherwise
// the next look comes back to it.
func (e *Ends) tell(ctx context.Context, k stream.Key, j job.Job) {
	e.Streams.EndedElsewhere(k, j.ID, j.Key, Retold(ctx, e.Queue, j, min(EndGrace*EndPatience, e.Window()/3))...)
}

// Retold returns the messages of an ended job for a client that has not received them in another
// way; none if the history entry no longer exists. A picture that went only over sockets is not in
// the history: its client waits that long after the end for the hub that has it, and is then told
// that it is lost. After a success without a picture, it would wait for ever.
func Retold(ctx context.Context, q *queue.Queue, j job.Job, patience time.Duration) []stream.Message {
	frames, owed := rebuilt(ctx, q, j)
	switch {
	case owed.NodeID == "" || len(frames) == 0:
	case time.Since(q.Clock().When(j.FinishedAt)) < patience:
		return nil
	default:
		frames[len(frames)-1] = stream.Text(comfyui.ExecutionError(j.ID, owed, time.Now()))
	}
	return frames
}

// rebuilt returns the messages of an ended job from its history entry; none if the entry no longer
// exists. owed is the failure to show to a client that has not got the results over its socket; its
// NodeID is empty if the history has them all.
func rebuilt(ctx context.Context, q *queue.Queue, j job.Job) (frames []stream.Message, owed comfyui.Failure) {
	entry, err := q.HistoryEntry(ctx, j.Tenant, j.ID)
	if err != nil {
		return nil, owed
	}
	raw, err := entry.JSON()
	if err != nil {
		return nil, owed
	}
	parsed, ok := comfyui.ParseEntry(raw)
	if !ok {
		return nil, owed
	}
	wanted := parsed.Wanted
	if len(wanted) == 0 { // the hub did not know them, and the instance's record was lost
		wanted = comfyui.SocketNodes(parsed.Graph)
	}
	if node := comfyui.OnlyBySocket(parsed.Graph, wanted); parsed.End == comfyui.TypeExecutionSuccess && node != "" {
		owed = comfyui.Failure{
			NodeID: node, NodeType: comfyui.ClassOf(parsed.Graph, node), Type: "ConnectionError",
			Message: "The prompt was executed, but its result went only over a socket and was lost on its way. Submit the prompt again.",
		}
	}
	return endFrames(j, parsed), owed
}

// endFrames returns the messages of an ended job as its history entry tells them: start, outputs,
// end. Progress is not stored and nobody needs it.
func endFrames(j job.Job, parsed comfyui.Entry) []stream.Message {
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
