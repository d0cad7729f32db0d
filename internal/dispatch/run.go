package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// run follows one attempt of a job on one instance: it puts the inputs there,
// posts the prompt, passes on what the instance says, and brings the results
// home. It belongs to one goroutine.
type run struct {
	d    *Dispatcher
	link *link // nil until the instance of an adopted run has been found
	mu   sync.Mutex
	job  job.Job // its Run changes under mu, see relet and known
	body job.Body
	mail *mailbox
	out  *stream.Run
	log  *slog.Logger

	// mark is the fence under which the prompt was posted; zero when another
	// hub posted it.
	mark int64
	// posted says that the instance may have the prompt.
	posted bool
	// began says that the instance executes it.
	began bool
	// gap says that messages were missed: the socket was away, or another
	// hub followed the run before.
	gap bool
	// late says that outputs were not shown when they came, because Redis was
	// away.
	late bool
	// rejected says that the instance's refusal was the answer to the client:
	// there never was such a job.
	rejected bool
	// cancelled says that the client wants the run to end.
	cancelled bool
	// withdrawn says that nobody is to hear of the run any more.
	withdrawn bool
	// node is the node that executes now, as the client's graph knows it.
	node string
	// shown are the output nodes whose executed message was passed on.
	shown map[string]bool
	// transcript has the messages that the instance keeps a record of.
	transcript transcript
	// end is the run's last message, held back until the job is in the history.
	end []byte
	// files are the outputs on their way to the hub.
	files *harvest
	// downSince is when the socket was lost; zero while it stands.
	downSince time.Time
	startedAt time.Time
	// noted is when the progress was last written to the queue.
	noted time.Time
	// heard is when the instance last said something about the run, or took
	// it.
	heard time.Time
	// gaveUp is when the hub interrupted the run because it was silent; zero
	// when it was not.
	gaveUp time.Time
	// failure is the hub's own verdict on a run that it had to interrupt.
	failure *trouble
}

// verdict is how following a run ended.
type verdict int

const (
	// over: the instance has finished with it, well or not.
	over verdict = iota
	// lost: the instance or its work is gone; the job must run elsewhere.
	lost
	// excused: as lost, and the job was not to blame at all.
	excused
	// killed: as lost, because the instance's process died while it had the
	// prompt. A machine or a network that went away is no proof of that.
	killed
	// dropped: another hub has the job, or this hub stops; touch nothing.
	dropped
)

func newRun(d *Dispatcher, l *link, j job.Job) *run {
	return &run{
		d: d, link: l, job: j, mail: newMailbox(),
		out:   d.streams.Begin(stream.Key{}, stream.Attempt{}), // nobody's until it begins
		log:   d.log.With("job", j.Key),
		shown: map[string]bool{},
	}
}

// watch follows the run to its end. reason says in plain words why it was lost.
func (r *run) watch(ctx context.Context) (v verdict, reason string) {
	r.heard = time.Now()
	for {
		e, err := r.mail.next(ctx, r.patience())
		if err != nil {
			return dropped, ""
		}
		switch e.kind {
		case frameArrived:
			r.heard = time.Now()
			if r.take(ctx, e.frame) {
				return over, ""
			}
		case socketUp:
			r.downSince = time.Time{}
			if v, reason, settled := r.look(ctx); settled {
				return v, reason
			}
		case socketDown:
			r.gap = true
			if r.downSince.IsZero() {
				r.downSince = time.Now()
			}
			switch {
			case gone(e.err) && r.began:
				return killed, "the instance died" + r.where()
			case gone(e.err), errors.Is(e.err, errDropped), time.Since(r.downSince) > r.d.settings().ContactTimeout:
				return lost, "the instance cannot be reached: " + e.err.Error()
			}
		case cancelAsked:
			r.cancelled = true
			r.interrupt(ctx)
		case withdrawn:
			r.withdraw()
			r.interrupt(ctx)
		case leaseLost:
			return dropped, ""
		case moved:
			r.link, r.gap, r.downSince = e.link, true, time.Time{}
			stop := r.listen(ctx)
			defer stop()
		case silence:
			if v, reason, settled := r.silent(ctx); settled {
				return v, reason
			}
		}
	}
}

// withdraw keeps all of the run from its client, who has taken the job back.
func (r *run) withdraw() {
	r.cancelled, r.withdrawn = true, true
	r.out.Lose()
}

// is reports whether a queue item is this run. Servers before 0.3.45 choose
// their own ids, so the mark decides too.
func (r *run) is(item comfyui.QueueItem) bool {
	return item.ID == r.job.Run.Upstream || item.Mark.Job == r.job.Key && (r.mark == 0 || item.Mark.Fence == r.mark)
}

// where says at which node the run is, as part of a reason.
func (r *run) where() string {
	if r.node == "" {
		return ""
	}
	class := classOf(r.body.Prompt, r.node)
	if class == "" { // a node that another one made
		return " at node " + r.node
	}
	return " at node " + r.node + " (" + class + ")"
}

// interrupt asks the instance to stop the run. On servers where the call is
// global it must be sure that the run is the one that runs.
func (r *run) interrupt(ctx context.Context) {
	if !r.posted {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if !r.link.capability().InterruptByID() {
		queue, err := r.link.client.Queue(ctx)
		if err != nil || len(queue.Running) == 0 || !r.is(queue.Running[0]) {
			return
		}
	}
	if err := r.link.client.Interrupt(ctx, r.job.Run.Upstream); err != nil {
		r.log.Warn("cannot interrupt the run", "error", err)
	}
}
