// Package run is one attempt at a job on one instance, from the claim to the end. A run goes through
// the phases of phases.go, each in a file of its name: it reads what is to run (prepare), gives it to
// the instance (post), passes on what the instance says (follow), fetches the results (collect), and
// ends the job or returns it to the queue (finish).
//
// The package gives no job to anybody: package dispatch does, and tells it through Elsewhere what
// it must know of the rest of the fleet.
package run

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// Run follows one attempt at a job on one instance: it puts the inputs there, posts the prompt,
// passes on what the instance says, and collects the results. Other goroutines may use only the
// claim and the mailbox.
type Run struct {
	claim
	state
	provenance
	screen
	signs
	burden
	timing timing
	d      *Runner
	conn   *instance.Link // nil until the instance of an adopted run has been found
	body   job.Body
	mail   *mailbox
	log    *slog.Logger
	// files are the outputs on their way to the hub.
	files *outputs
	// parting stops the run's work once nobody has wanted it for a while.
	parting parting
	// division is how it is split, nil if it is not, partEnded tells that a part may have ended, and
	// others is what they say. demands are what instances must be like for the other parts.
	division  *division
	partEnded chan struct{}
	others    overheard
	demands   atomic.Pointer[demands]
	// trace has the spans of the run; nil if its prompt is not traced.
	trace *traces.Attempt
	// doing is what it is doing right now, for whoever watches the fleet.
	doing doing
	// recalled says that the run was asked to come back and has not tried yet.
	recalled atomic.Bool
}

// provenance is how this hub came by a run.
type provenance struct {
	// takenAt is when this hub got the run, and adopted where it took it over from.
	takenAt time.Time
	adopted Origin
	// told is how long an adopted run has taken as its instance says, zero if that is not known.
	told time.Duration
	// mark is the fence under which the prompt was posted; zero if another hub posted it. postedAt
	// is when; zero for an adopted run.
	mark     int64
	postedAt time.Time
	// boot is the process of the instance that has the run, as reported when the run began; 0 for
	// an adopted one.
	boot int64
	// alone says that nothing else was waiting when the job was given out. needs are the
	// requirements of a run that was given out ahead.
	alone bool
	needs []byte
}

// screen is what the client of a run sees.
type screen struct {
	// out is the client's sequence; nil before the run executes, and when what the client was shown
	// is no longer valid.
	out *stream.Run
	// results are the nodes whose pictures on the socket are results, not previews. shown are the
	// output nodes whose executed message was passed on, and cached the nodes whose results the
	// instance already had.
	results []string
	shown   map[string]bool
	cached  []string
	// current is the newest executing message, entered are the nodes of such messages, and board is the
	// newest progress_state of the run's own nodes.
	current []byte
	entered map[string]bool
	board   []byte
	// transcript has the messages that the instance keeps on record.
	transcript transcript
	// end is the run's last message, held back until the job is in the history, and endedAt is when
	// it came.
	end     []byte
	endedAt time.Time
}

// signs are those of a run's life.
type signs struct {
	// down is why the socket was lost; nil while it is open.
	down error
	// provenAt is when the run was last known to be going on, apart from what its link hears: when
	// it began to be watched, or when an agent last said so.
	provenAt time.Time
	// heard is when the instance last showed that it was working on the run, or took it. asked is
	// when it was last asked whether it still has the run.
	heard, asked time.Time
	// noted is when progress was last written to the queue.
	noted time.Time
}

// burden is what a run puts on its instance.
type burden struct {
	// models are those that it loads, empty for a run that was taken over. cold says that the
	// instance had other models before.
	models []string
	cold   bool
	// peak is the most GPU memory that the instance was seen to take, in bytes; 0 if nobody has
	// looked. weighing says that somebody is looking.
	peak     atomic.Int64
	weighing atomic.Bool
}

// perform takes a run through its steps, which are execute for a new one, and ends it with
// conclude. A panic on the way ends this run only.
func (r *Run) perform(ctx context.Context, steps func(context.Context) result) resultKind {
	defer func() { r.files.stop() }()
	defer func() { r.trace.End() }()
	var res result
	if panics.Do(r.log, "a run", func() error {
		res = r.part(ctx, steps)
		finishing{r}.conclude(ctx, res)
		return nil
	}) != nil {
		_ = panics.Do(r.log, "the end of a run", func() error { finishing{r}.crash(ctx); return nil })
		return jobEnded
	}
	return res.kind
}

// beside does work for the run in a goroutine of its own. A panic there ends the run, like one in
// the run's own goroutine.
func (r *Run) beside(work string, f func()) {
	r.d.Work.Go(r.log, work, func() {
		if err := panics.Do(r.log, work, func() error { f(); return nil }); err != nil {
			r.mail.put(runEvent{kind: hubFailed})
		}
	})
}

// is reports whether a queue item is this run. Servers before 0.3.45 choose their own ids, so the
// mark decides too.
func (r *Run) is(item comfyui.QueueItem) bool {
	j := r.Job()
	return item.ID == j.Run.Upstream || item.Mark.Job == j.Key && (r.mark == 0 || item.Mark.Fence == r.mark)
}

// where names the node that the run is at, as part of a reason.
func (r *Run) where() string {
	if r.node == "" {
		return ""
	}
	class := comfyui.ClassOf(r.body.Prompt, r.node)
	if class == "" { // a node that another one created
		return " at node " + r.node
	}
	return " at node " + r.node + " (" + class + ")"
}

// interrupt asks the instance to stop the run. On servers where the call is global, it must be sure
// that this is the run that is running.
func (r *Run) interrupt(ctx context.Context) {
	if r.phase != posted && r.phase != executing {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if !r.conn.Capability().InterruptByID() {
		queue, err := r.conn.Client.Queue(ctx)
		if err != nil || len(queue.Running) == 0 || !r.is(queue.Running[0]) {
			return
		}
	}
	if err := r.conn.Client.Interrupt(ctx, r.Lease().Upstream); err != nil {
		r.log.Warn("cannot interrupt the run", "error", err)
	}
}

// New returns a run of a job that is still to be claimed, on an instance, or with nil on one that is
// found out later.
func (rn *Runner) New(conn *instance.Link, j job.Job) *Run {
	r := &Run{
		state: state{phase: preparing, resends: hasLostResults(j)},
		d:     rn, partEnded: make(chan struct{}, 1), parting: newParting(), conn: conn, mail: newMailbox(), log: rn.Logger.With("job", j.Key, "prompt", j.ID),
		provenance: provenance{takenAt: time.Now()}, screen: screen{shown: map[string]bool{}},
	}
	r.take(j)
	if conn != nil {
		i, _ := rn.Fleet.Instance(conn.Name)
		r.boot = i.Report.Boot
	}
	r.files = newOutputs(r)
	return r
}

// Of returns the run that an instance is on and the one that waits behind it. Either may be nil.
func Of(conn *instance.Link) (runs [2]*Run) {
	for n, r := range conn.Runs() {
		h, _ := r.(*holder)
		runs[n] = (*Run)(h)
	}
	return runs
}

// Holder is a run as its link knows it. The phases of a run embed it, so if it were a Holder they
// would be, too, and a link would take a phase for another run.
type holder Run

// Holder returns the run as its link knows it.
func (r *Run) Holder() instance.Holder { return (*holder)(r) }

// Job implements [instance.Holder].
func (h *holder) Job() job.Job { return (*Run)(h).Job() }

// Tell implements [instance.Holder].
func (h *holder) Tell(e instance.Event) {
	kind := [...]eventKind{instance.Heard: frameArrived, instance.Up: socketUp, instance.Down: socketDown, instance.Moved: moved, instance.Next: movedUp, instance.Idle: idleReported}[e.Kind]
	h.mail.put(runEvent{kind: kind, frame: e.Frame, err: e.Err, conn: e.Link})
}

// Followed implements [instance.Holder].
func (h *holder) Followed() bool { return h.d.Runs.Get(h.Job().Key) == (*Run)(h) }

// load notes that the instance is beginning the run and loading its models.
func (r *Run) load() {
	if r.cold = r.conn.Loads(r.models); r.cold {
		r.d.Observe.Switched(r.conn.Name, false)
	}
}

// maxUnknown is how often a step that fails for an unknown reason is tried again.
const maxUnknown = 4

// retry repeats a step while Redis is unavailable: the work of a run must not be lost because Redis
// restarts at the wrong moment. A step that fails for a reason nobody has thought of is tried a few
// more times.
func (r *Run) retry(ctx context.Context, step string, do func(context.Context) error) error {
	unknown, trouble := 0, retry.Trouble{}
	for pauses := retry.New(100*time.Millisecond, 2*time.Second); ; {
		err := do(ctx)
		switch {
		case errors.Is(err, queue.ErrStale):
			r.log.Warn("the run is no longer this hub's", "step", step)
			return err
		case err == nil, decided(err):
			return err
		case errors.Is(err, queue.ErrUnavailable):
			if trouble.IsNews(err) {
				r.log.Warn("Redis is away, will try again", "step", step, "error", err)
			}
		case unknown == maxUnknown:
			r.log.Error("a step of a run failed; some hub will retry it when the run's lease expires", "step", step, "error", err)
			return err
		default:
			unknown++
			r.log.Error("a step of a run failed, will try again", "step", step, "error", err)
		}
		if !pauses.Wait(ctx) {
			return ctx.Err()
		}
	}
}

// decided reports whether an error is an answer of the queue that stays the same however often it
// is asked.
func decided(err error) bool {
	return slices.ContainsFunc([]error{
		queue.ErrStale, queue.ErrWithdrawn, queue.ErrExhausted, queue.ErrCancelled, queue.ErrAnswered, queue.ErrNotFound, queue.ErrNotQueued,
		queue.ErrTaken, queue.ErrCapped, queue.ErrSecrets, queue.ErrCorrupt,
	}, func(answer error) bool { return errors.Is(err, answer) })
}

// billed returns the lease of the run with how long the run has occupied its instance, which is
// unknown for a run that this hub has taken over: then with what the instance says.
func (r *Run) billed() job.Run {
	lease, since := r.Lease(), r.takenAt
	if r.Job().Ahead { // until then it waited behind another one
		since = r.startedAt
	}
	if r.adopted == "" && !since.IsZero() {
		lease.Took = time.Since(since)
	}
	lease.Told = r.told
	return lease
}

// Detach lets the run's instance, if it has one, take another job. It may be called twice.
func (r *Run) Detach() {
	if r.conn == nil {
		return
	}
	r.conn.Detach(r.Holder())
	if next := r.d.Links.Get(r.conn.Name); next != nil {
		next.Detach(r.Holder()) // the run was moved there and does not know yet
	}
}

// elsewhere returns the other connected instances that could run the run's job, without those that cost
// money.
func (r *Run) elsewhere() []*instance.Link {
	return r.d.Elsewhere.Others(r.conn, r.Job(), r.body.Requires)
}

// isAhead reports whether the run is waiting at its instance behind another one.
func (r *Run) isAhead() bool {
	return r.conn != nil && r.conn.IsAhead(r.Holder())
}

// AskBack asks the run to leave its instance if it is still waiting there.
func (r *Run) AskBack() {
	if r.recalled.CompareAndSwap(false, true) {
		r.mail.put(runEvent{kind: takeBackAsked})
	}
}

// Attach makes the run its instance's, or with the requirements of its class the one behind the
// instance's, and reports whether there is room for it. Detach takes it back.
func (r *Run) Attach(ahead bool, needs []byte) bool {
	if ahead {
		r.needs = needs
		return r.conn.AttachAhead(r.Holder())
	}
	return r.conn.Attach(r.Holder())
}

// Needs are the requirements of a run that was given out ahead; nil for others, also for one that was
// taken over.
func (r *Run) Needs() []byte { return r.needs }

// Evict asks the run to leave its instance, as if its job had never been given out. It may have to be
// asked again.
func (r *Run) Evict() { r.mail.put(runEvent{kind: evictAsked}) }

// queueAway is the result of a run whose data cannot be read because Redis is away. The error
// contains Redis's address, and the client is shown the reason.
func (r *Run) queueAway(err error) result {
	r.log.Warn("Redis is away", "error", err)
	return result{kind: excused, cause: Redis, reason: "the hub's queue cannot be reached", anywhere: true}
}

// cancelledEnd is the result of a cancelled run whose instance does not report the interrupt.
func (r *Run) cancelledEnd() result {
	return cancelEnding(r.Job(), r.body, time.Now())
}
