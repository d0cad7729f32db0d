package overflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/facade"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// errBack means that the job goes back to the queue.
var errBack = errors.New("overflow: the job goes back")

// errand is a prompt that an endpoint is to run.
type errand struct {
	life *life
	e    *Endpoint
	run  *facade.Run
	job  string
	// fence tells this attempt at the job from others.
	fence int64
	rec   record
	// shown is when the client was told last that it goes on, and told what.
	shown time.Time
	told  float64
}

// Execute implements [facade.Backend].
func (l *life) Execute(ctx context.Context, r *facade.Run) error {
	job, fence, err := markOf(r)
	if err != nil {
		return err
	}
	a := &errand{life: l, e: l.slot.e, run: r, job: job, fence: fence}
	a.e.busy(1)
	defer a.e.busy(-1)
	err = a.do(ctx)
	if errors.Is(err, errBack) {
		l.leave()
		<-ctx.Done() // the facade closes: nobody must be told how the prompt ends
	}
	return err
}

// closing reports whether the slot is closed, and not just the prompt interrupted.
func (a *errand) closing() bool {
	select {
	case <-a.life.ended:
		return true
	default:
		return false
	}
}

// do runs the prompt, or goes on with a run of it.
func (a *errand) do(ctx context.Context) error {
	known := false
	err := a.retry(ctx, func(ctx context.Context) (err error) {
		a.rec, known, err = a.e.o.Book.store.find(ctx, a.job)
		return err
	})
	switch {
	case err != nil:
		return err
	case !known:
		err = a.ask(ctx)
	case a.rec.Endpoint != a.e.o.Name || a.rec.Phase == over || a.rec.Ending || a.rec.Fence > a.fence:
		return errBack
	case a.rec.Phase == asked && a.e.o.Remote.Repeats():
		err = a.start(ctx, true)
	case a.rec.Phase == asked:
		// Whoever has asked is gone, and nobody knows what the answer was.
		return a.giveUp(ctx, "the hub that has asked the endpoint is gone, and nobody knows the answer", a.rec.Aside)
	default:
		err = a.takeOver(ctx)
	}
	if err != nil {
		return err
	}
	return a.follow(ctx)
}

// takeOver makes the run this attempt's: an earlier one changes nothing any more.
func (a *errand) takeOver(ctx context.Context) error {
	rec := a.rec
	rec.Fence = a.fence
	if err := a.move(ctx, &rec, 0, ""); errors.Is(err, errChanged) {
		return errBack
	} else if err != nil {
		return err
	}
	return nil
}

// ask begins a run, and notes first that it is about to.
func (a *errand) ask(ctx context.Context) error {
	tenant := ""
	if err := a.retry(ctx, func(ctx context.Context) (err error) {
		tenant, err = a.e.o.Tenant(ctx, a.job)
		return err
	}); err != nil {
		return err
	}
	rec := record{Endpoint: a.e.o.Name, Run: uuid.NewString(), Phase: asked, Fence: a.fence, Tenant: tenant, Aside: a.e.worst(), At: a.e.o.Book.store.now()}
	if _, err := a.e.request(a.run, rec.Run); err != nil {
		rec.Phase, rec.Aside = over, 0
		a.say("a job cannot go to an endpoint", err.Error())
		return orElse(a.move(ctx, &rec, 0, ""), errBack)
	}
	switch err := a.move(ctx, &rec, 0, a.e.limit()); {
	case errors.Is(err, errBudget):
		a.e.count(ctx)
		a.e.rest("its budget of the day is spent")
		return errBack
	case errors.Is(err, errChanged):
		return errBack
	case err != nil:
		return err
	}
	return a.start(ctx, false)
}

// orElse is the first error that matters.
func orElse(errs ...error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, errChanged) {
			return err
		}
	}
	return nil
}

// askedFor is how long an endpoint is asked again that does not say whether a run has begun. It knows the
// key of the run for longer, and the job does not wait for it for longer beside idle instances.
const askedFor = 2 * time.Minute

// start asks the endpoint for the run. doubt says that it was asked before, and perhaps has begun the run.
func (a *errand) start(ctx context.Context, doubt bool) error {
	request, err := a.e.request(a.run, a.rec.Run)
	if err != nil {
		return a.giveUp(ctx, err.Error(), a.atStake(doubt))
	}
	id, until := "", time.Now().Add(askedFor)
	var refused *RefusedError
	for pauses := retry.New(time.Second, 10*time.Second); ; {
		// Once it is asked, the answer is waited for: else nobody would know it.
		id, err = a.e.o.Remote.Start(context.WithoutCancel(ctx), request)
		refused, _ = errors.AsType[*RefusedError](err)
		doubt = doubt || err != nil && refused == nil
		// An endpoint that cannot be reached or takes no runs now says nothing about the run that it may have.
		again := errors.Is(err, ErrUnclear) || doubt && refused != nil && refused.Endpoint
		if !again || !a.e.o.Remote.Repeats() || time.Now().After(until) || !pauses.Wait(ctx) {
			break
		}
	}
	switch {
	case err == nil:
	case doubt && ctx.Err() != nil && a.e.o.Remote.Repeats():
		return ctx.Err() // the next one asks again, or it is swept
	case !doubt && refused != nil && refused.Endpoint:
		a.e.rest(refused.Reason)
		a.say("an endpoint takes no runs", refused.Reason)
		return orElse(a.forget(ctx), errBack)
	default:
		return a.giveUp(ctx, err.Error(), a.atStake(doubt))
	}
	rec := a.rec
	rec.Phase, rec.Remote = begun, id
	if err := a.move(ctx, &rec, 0, ""); err != nil {
		if errors.Is(err, errChanged) { // somebody took this hub for dead
			a.abandon(ctx, id)
			return errBack
		}
		return err
	}
	a.e.o.Log.Info("a job runs at an endpoint", "endpoint", a.e.o.Name, "job", a.job, "run", id)
	return nil
}

// atStake is what the run may cost: nothing, unless it may have begun.
func (a *errand) atStake(doubt bool) int64 {
	if doubt {
		return a.rec.Aside
	}
	return 0
}

// abandon ends a run whose id came too late to be noted, unless another attempt has it: a service gives
// all attempts that ask under one key the same run.
func (a *errand) abandon(ctx context.Context, id string) {
	var now record
	err := a.retry(context.WithoutCancel(ctx), func(ctx context.Context) (err error) {
		now, _, err = a.e.o.Book.store.find(ctx, a.job)
		return err
	})
	if err == nil && (now.Run != a.rec.Run || now.Phase == over) {
		_ = a.e.o.Remote.Cancel(context.WithoutCancel(ctx), id)
	}
}

// giveUp keeps the job from all endpoints and gives it back.
func (a *errand) giveUp(ctx context.Context, reason string, cost int64) error {
	a.say("a job goes to no endpoint any more", reason)
	return orElse(a.settle(ctx, over, cost), errBack)
}

func (a *errand) say(what, reason string) {
	a.e.o.Log.Warn(what, "endpoint", a.e.o.Name, "job", a.job, "reason", clip(reason))
}

// follow looks after the run until it ends.
func (a *errand) follow(ctx context.Context) error {
	pause, misses := firstPoll, 0
	for ctx.Err() == nil {
		answer, err := a.e.o.Remote.Status(ctx, a.rec.Remote)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, ErrNoRun):
			if misses++; misses >= 3 {
				return a.fail(ctx, a.rec.Aside, "RuntimeError", "the endpoint no longer knows the run")
			}
		case err != nil:
			if a.e.outlived(a.rec) {
				return a.fail(ctx, a.rec.Aside, "TimeoutError", "the endpoint does not say what has become of the run")
			}
		case answer.State.Ended():
			return a.ended(ctx, answer)
		case a.e.outlived(a.rec):
			_ = a.e.o.Remote.Cancel(ctx, a.rec.Remote)
			return a.fail(ctx, a.rec.Aside, "TimeoutError", "the endpoint has not finished the run in time")
		default:
			misses = 0
			a.show(answer)
		}
		retry.Sleep(ctx, pause)
		pause = min(pause*3/2, mostPoll)
	}
	return a.stop(ctx)
}

// show tells the client how far the run is.
func (a *errand) show(answer Answer) {
	progress := max(answer.Progress, 0)
	if time.Since(a.shown) < shownEvery && progress == a.told && !a.shown.IsZero() {
		return
	}
	a.shown, a.told = time.Now(), progress
	node := answer.Node
	if a.run.Class(node) == "" {
		node = a.run.Outputs[0]
	}
	const parts = 100
	a.run.Progress(node, progress*parts, parts)
}

// ended takes what has come of the run.
func (a *errand) ended(ctx context.Context, answer Answer) error {
	cost := a.e.cost(answer, a.rec)
	switch answer.State {
	case TimedOut:
		return a.fail(ctx, cost, "TimeoutError", "the run has taken too long at the endpoint")
	case Cancelled:
		// Not by the job's owner, of whom the hub would know: by a hub that saw the job run elsewhere, or
		// by somebody at the endpoint.
		return a.giveUp(ctx, "the run was cancelled at the endpoint", cost)
	case Failed, Queued, Running:
		return a.fail(ctx, cost, "RuntimeError", "the endpoint says: "+answer.Reason)
	case Done:
	}
	if a.rec.Phase == begun {
		if err := a.settle(ctx, settled, cost); errors.Is(err, errChanged) {
			return errBack // it is another attempt's
		} else if err != nil {
			return err
		}
	}
	k := &keeper{e: a.e, run: a.run, left: maxBytes}
	pauses := retry.New(time.Second, mostPoll)
	for tries := 0; ; tries++ {
		err := k.keep(ctx, answer.Files)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if tries == 3 {
			return &facade.Failure{Type: "RuntimeError", Message: clip(err.Error())}
		}
		pauses.Wait(ctx)
	}
}

// fail ends the run as one that has come to nothing. Nobody pays for the job again.
func (a *errand) fail(ctx context.Context, cost int64, kind, message string) error {
	if err := a.settle(ctx, over, cost); errors.Is(err, errChanged) {
		return errBack
	} else if err != nil {
		return err
	}
	return &facade.Failure{Type: kind, Message: message}
}

// stop ends the run at the endpoint if the prompt was interrupted. A slot that is closed leaves it to
// the next hub.
func (a *errand) stop(ctx context.Context) error {
	if a.closing() {
		return ctx.Err()
	}
	rec := a.rec
	rec.Ending = true // no other attempt has it now or later, or it is not ended here
	if a.move(ctx, &rec, 0, "") != nil {
		return ctx.Err()
	}
	steady, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceFor)
	defer cancel()
	for pauses := retry.New(time.Second, mostPoll); ; {
		answer, err := a.e.end(steady, a.rec)
		switch {
		case errors.Is(err, ErrNoRun):
			_ = a.settle(steady, over, a.rec.Aside)
			return ctx.Err()
		case err == nil && answer.State.Ended():
			_ = a.settle(steady, over, a.e.cost(answer, a.rec)) // else it is swept
			return ctx.Err()
		}
		if a.closing() || !pauses.Wait(steady) {
			return ctx.Err() // it is swept
		}
	}
}

// settle counts what the run has cost.
func (a *errand) settle(ctx context.Context, to phase, cost int64) error {
	rec := a.rec
	rec.Phase, rec.Aside, rec.Ending = to, 0, false
	if a.rec.Phase == settled || a.rec.Phase == over {
		cost = 0
	}
	return a.move(ctx, &rec, cost, "")
}

// forget removes the record: there is no run.
func (a *errand) forget(ctx context.Context) error { return a.move(ctx, nil, 0, "") }

// move changes the record. It tries until that is done, or somebody else has changed it, or the slot is
// closed.
func (a *errand) move(ctx context.Context, to *record, cost int64, budget string) error {
	return a.retry(context.WithoutCancel(ctx), func(ctx context.Context) error {
		rec, err := a.e.o.Book.move(ctx, change{job: a.job, from: a.rec, to: to, cost: cost, budget: budget})
		if err == nil {
			a.rec = rec
		}
		return err
	})
}

// retry repeats what Redis has to do while it is away.
func (a *errand) retry(ctx context.Context, do func(context.Context) error) error {
	for pauses := retry.New(100*time.Millisecond, 2*time.Second); ; {
		err := do(ctx)
		if err == nil || errors.Is(err, errChanged) || errors.Is(err, errBudget) {
			return err
		}
		if a.closing() || !pauses.Wait(ctx) {
			return fmt.Errorf("overflow: %w", err)
		}
	}
}
