package run

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// vouchFactor times ContactTimeout is the longest a run is kept whose instance this hub cannot
	// reach while reports say that it is still going on there.
	vouchFactor = 40
	// unwantedPatience is how long a cancelled run waits for an instance that cannot be reached.
	// Whatever is still running there is stopped when the instance is back.
	unwantedPatience = 2 * time.Second
)

// lookDown is how often a run whose socket is lost checks whether it is lost too.
const lookDown = time.Second

// errSilent is the cause when a run's context ends because its instance has shown no sign of life
// for too long.
var errSilent = errors.New("it has given no sign of life for too long")

// silent reports whether a context of whileHeard has ended for that reason.
func silent(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errSilent) }

// whileHeard returns a context that ends when the instance has shown no sign of life for
// contact_timeout, if another one could run the job. Call stop when it is no longer needed.
func (r posting) whileHeard(ctx context.Context) (heard context.Context, stop func()) {
	heard, leave := context.WithCancelCause(ctx)
	watch := func() {
		for contact := r.d.Settings().ContactTimeout; ; {
			left := contact - time.Since(r.conn.LastSeen())
			if left <= 0 && len(r.elsewhere()) > 0 {
				leave(errSilent)
				return
			}
			if !retry.Sleep(heard, max(left, lookDown)) {
				return
			}
		}
	}
	r.beside("listening for signs of life", watch)
	return heard, func() { leave(nil) }
}

// unwantedFor is how long a run may take to end after its job was cancelled, whatever it or its
// instance is doing. After that the client is told that it has ended.
const unwantedFor = 4 * time.Second

// errUnwanted is the cause with which the context of such a run ends.
var errUnwanted = errors.New("run: nobody wants the run")

// parting is how others tell a run that it should end.
type parting struct {
	// unwanted ends when the job was cancelled.
	unwanted context.Context
	unwant   context.CancelFunc
	// silently says that the client has withdrawn the job.
	silently *atomic.Bool
}

func newParting() parting {
	unwanted, unwant := context.WithCancel(context.Background())
	return parting{unwanted, unwant, new(atomic.Bool)}
}

// part takes a run through its steps, but gives up a while after its job was cancelled.
func (r *Run) part(ctx context.Context, steps func(context.Context) result) result {
	steady, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	files := r.files
	defer context.AfterFunc(r.parting.unwanted, func() {
		if retry.Sleep(steady, unwantedFor) {
			leave(errUnwanted)
			files.stop()
		}
	})()
	res := steps(steady)
	if res.kind != dropped || ctx.Err() != nil || !errors.Is(context.Cause(steady), errUnwanted) {
		return res
	}
	r.log.Warn("the instance keeps running a cancelled prompt; interrupting it again once it answers")
	if r.wish = max(r.wish, cancelled); r.parting.silently.Load() {
		showing{r}.withdraw()
	}
	if r.conn != nil && r.phase < released {
		// The instance gets no other job until it has answered what became of this one.
		r.conn.Reopen()
		r.Detach()
	}
	return r.cancelledEnd()
}
