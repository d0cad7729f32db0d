package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// run follows one attempt at a job on one instance: it puts the inputs there, posts the prompt,
// passes on what the instance says, and collects the results. Other goroutines may use only the
// claim and the mailbox.
//
// Many methods: an attempt goes through its phases in order, and each phase reads what the ones
// before it have found out; split up, they would have to pass all of that to each other.
type run struct {
	claim
	state
	d    *runner
	conn *instance.Link // nil until the instance of an adopted run has been found
	body job.Body
	// results are the nodes whose pictures on the socket are results, not previews.
	results []string
	mail    *mailbox
	log     *slog.Logger

	// out is the client's sequence; nil before the run executes, and when what the client was shown
	// is no longer valid.
	out *stream.Run
	// mark is the fence under which the prompt was posted; zero if another hub posted it.
	mark int64
	// shown are the output nodes whose executed message was passed on.
	shown map[string]bool
	// transcript has the messages that the instance keeps on record.
	transcript transcript
	// end is the run's last message, held back until the job is in the history.
	end []byte
	// files are the outputs on their way to the hub.
	files *outputs
	// down is why the socket was lost; nil while it is open.
	down error
	// provenAt is when the run was last known to be going on, apart from what its connection hears:
	// when it began to be watched, or when an agent last said so.
	provenAt time.Time
	// parting stops the run's work once nobody has wanted it for a while.
	parting parting
	// noted is when progress was last written to the queue.
	noted time.Time
	// boot is the process of the instance that has the run, as reported when the run began; 0 for
	// an adopted one.
	boot int64
	// cold says that the instance had other models before. cached are the nodes whose results it
	// already had, and endedAt is when it said that the prompt had ended.
	cold    bool
	cached  []string
	endedAt time.Time
	// postedAt is when the prompt was posted; zero for an adopted run.
	postedAt time.Time
	// heard is when the instance last showed that it was working on the run, or took it. asked is
	// when it was last asked whether it still has the run.
	heard, asked time.Time
	// needs are the requirements of a run that was given out ahead. models are those that it loads,
	// empty for a run that was taken over.
	needs  []byte
	models []string
	// peak is the most GPU memory that the instance was seen to take, in bytes; 0 if nobody has
	// looked.
	peak atomic.Int64
	// weighing says that somebody is looking.
	weighing atomic.Bool
	// alone says that nothing else was waiting when the job was given out. division is how its batch is
	// split, nil if it is not, and partEnded tells that a part may have ended.
	alone     bool
	division  *division
	partEnded chan struct{}
	// trace has the spans of the run; nil if its prompt is not traced. takenAt is when this hub got
	// the run, and adopted where it took it over from.
	trace   *traces.Attempt
	takenAt time.Time
	adopted Origin
	// doing is what it is doing right now, for whoever watches the fleet.
	doing doing
	// recalled says that the run was asked to come back and has not tried yet.
	recalled atomic.Bool
}

// perform takes a run through its steps, which are execute for a new one, and ends it with
// conclude. A panic on the way ends this run only.
func (r *run) perform(ctx context.Context, steps func(context.Context) result) resultKind {
	defer func() { r.files.stop() }()
	defer func() { r.trace.End() }()
	var res result
	if panics.Do(r.log, "a run", func() error {
		res = r.part(ctx, steps)
		r.conclude(ctx, res)
		return nil
	}) != nil {
		_ = panics.Do(r.log, "the end of a run", func() error { r.crash(ctx); return nil })
		return jobEnded
	}
	return res.kind
}

// beside does work for the run in a goroutine of its own. A panic there ends the run, like one in
// the run's own goroutine.
func (r *run) beside(work string, f func()) {
	r.d.work.Go(r.log, work, func() {
		if err := panics.Do(r.log, work, func() error { f(); return nil }); err != nil {
			r.mail.put(runEvent{kind: hubFailed})
		}
	})
}

// execute runs a claimed job: it reads the body, posts the prompt once its inputs are there,
// watches the instance run it, and collects the results.
func (r *run) execute(ctx context.Context) result {
	key := r.Job().Key
	body, err := r.d.queue.Body(ctx, key)
	r.takeBody(body) // even the part that could be read: the history shows it
	if err != nil {
		return r.unreadable(ctx, err)
	}
	if r.wish != wanted {
		return r.cancelledEnd()
	}
	if res := r.tooSmall(); res.kind != undecided {
		return res
	}
	if res := r.divide(ctx); res.kind != undecided {
		return res
	}
	err = r.submit(ctx)
	var refused refusal
	switch {
	case err == nil:
		return r.follow(ctx)
	case errors.As(err, &refused):
		return r.refused(ctx, refused)
	case ctx.Err() != nil:
		return result{kind: dropped} // the hub is stopping; the lease ends and the job goes elsewhere
	}
	return r.notTaken(err)
}

// watch follows the run until its instance has finished with it, or it is lost.
func (r *run) watch(ctx context.Context) result {
	r.heard, r.asked, r.provenAt = time.Now(), time.Now(), time.Now()
	for {
		e, err := r.mail.next(ctx, time.Until(r.due()))
		if err != nil {
			return result{kind: dropped}
		}
		if e.gap { // a dropped picture may have been a result that exists nowhere else
			r.missed.messages = true
			r.log.Warn("dropped messages of a run: the hub could not keep up")
		}
		switch e.kind {
		case frameArrived:
			if r.relay(ctx, e.frame) {
				return result{kind: instanceDone}
			}
		case socketUp:
			// Even if nobody told this run that the socket was lost: it may have been given out
			// just after that.
			r.missed.messages, r.down = true, nil
			if res := r.look(ctx); res.kind != undecided {
				return res
			}
		case heldElsewhere:
			// The other hub may have received the final message, and when its socket closed,
			// ComfyUI may have silenced ours, which has the same client id.
			r.missed.messages = true
			if res := r.look(ctx); res.kind != undecided {
				return res
			}
		case lookAsked:
			if res := r.look(ctx); res.kind != undecided {
				return res
			}
		case socketDown:
			r.missed.messages = true
			r.down = e.err
			switch {
			case errors.Is(e.err, panics.ErrPanic):
				return result{kind: crashed}
			case instance.Gone(e.err) && r.phase == executing:
				return result{kind: killed, died: true, asked: instance.Asked(e.err), reason: "the instance died" + r.where()}
			case instance.Gone(e.err), errors.Is(e.err, instance.ErrDropped), r.outOfReach():
				return r.unreachable()
			}
		case cancelAsked:
			r.wish = max(r.wish, cancelled)
			if r.unload(ctx) {
				return r.cancelledEnd()
			}
			r.interrupt(ctx)
		case withdrawAsked:
			r.withdraw()
			if r.unload(ctx) {
				return r.cancelledEnd()
			}
			r.interrupt(ctx)
		case takeBackAsked:
			r.recalled.Store(false)
			if r.unload(ctx) {
				return result{kind: unused}
			}
		case evictAsked:
			if res := r.evict(ctx); res.kind != undecided {
				return res
			}
		case partHeard:
			r.division.look(ctx)
		case movedUp:
			r.heard = time.Now()
		case leaseLost:
			return result{kind: dropped}
		case hubFailed:
			return result{kind: crashed}
		case moved:
			r.conn, r.missed.messages, r.down, r.provenAt = e.conn, true, nil, time.Now()
			stop := r.listen()
			defer stop()
		case workDone: // only comes to a run that has ended
		case silence:
			if res := r.silent(ctx); res.kind != undecided {
				return res
			}
		}
	}
}

// withdraw shows the client nothing more of the run: the client has withdrawn the job.
func (r *run) withdraw() {
	r.wish = withdrawn
	r.lose()
}

// lose takes back what the client was shown of the run.
func (r *run) lose() {
	if r.out != nil {
		r.out.Lose()
		r.out = nil
	}
}

// is reports whether a queue item is this run. Servers before 0.3.45 choose their own ids, so the
// mark decides too.
func (r *run) is(item comfyui.QueueItem) bool {
	j := r.Job()
	return item.ID == j.Run.Upstream || item.Mark.Job == j.Key && (r.mark == 0 || item.Mark.Fence == r.mark)
}

// where names the node that the run is at, as part of a reason.
func (r *run) where() string {
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
func (r *run) interrupt(ctx context.Context) {
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
	if err := r.conn.Client.Interrupt(ctx, r.lease().Upstream); err != nil {
		r.log.Warn("cannot interrupt the run", "error", err)
	}
}

func (rn *runner) newRun(conn *instance.Link, j job.Job) *run {
	r := &run{
		state: state{phase: preparing, resends: hasLostResults(j)},
		d:     rn, partEnded: make(chan struct{}, 1), takenAt: time.Now(), parting: newParting(), conn: conn, mail: newMailbox(), log: rn.log.With("job", j.Key, "prompt", j.ID), shown: map[string]bool{},
	}
	r.take(j)
	if conn != nil {
		i, _ := rn.fleet.Instance(conn.Name)
		r.boot = i.Report.Boot
	}
	r.files = newOutputs(r)
	return r
}

// runsOf returns the run that an instance is on and the one that waits behind it. Either may be nil.
func runsOf(conn *instance.Link) (runs [2]*run) {
	for n, r := range conn.Runs() {
		runs[n], _ = r.(*run)
	}
	return runs
}

// Tell takes what happened to the run's link.
func (r *run) Tell(e instance.Event) {
	kind := [...]eventKind{instance.Heard: frameArrived, instance.Up: socketUp, instance.Down: socketDown, instance.Moved: moved, instance.Next: movedUp}[e.Kind]
	r.mail.put(runEvent{kind: kind, frame: e.Frame, err: e.Err, conn: e.Link})
}

// Followed reports whether the hub still follows the run.
func (r *run) Followed() bool { return r.d.runs.get(r.Job().Key) == r }

// load notes that the instance is beginning the run and loading its models.
func (r *run) load() {
	if r.cold = r.conn.Loads(r.models); r.cold {
		r.d.observe.Switched(r.conn.Name)
	}
}
