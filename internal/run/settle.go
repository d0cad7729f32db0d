package run

import (
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// nameOutputs gives the outputs of a finished run their names at the hub. It waits for Redis, and
// for the instance as long as the patience with it lasts: the work is done, and only a file that is
// really gone is worth another run.
func (r collecting) nameOutputs(ctx context.Context, outputs []byte) ([]byte, result) {
	named, err := r.files.name(ctx, outputs, unseen{cached: true}, func(conn *instance.Link) { r.conn = conn }) // the only unknown ones are those whose messages were missed
	switch {
	case err == nil:
		return named, result{}
	case ctx.Err() != nil:
		return nil, result{kind: dropped}
	}
	return nil, result{kind: lost, cause: Results, reason: "its output files cannot be read: " + err.Error()}
}

// name is rename, and waits for Redis, and for the instance as long as the patience with it lasts.
// moved is told of its connection if that is a new one.
func (o *outputs) name(ctx context.Context, outputs []byte, u unseen, moved func(*instance.Link)) ([]byte, error) {
	r := o.run
	var failing time.Time // since when the instance has been the problem
	var trouble retry.Trouble
	for pauses := retry.New(100*time.Millisecond, 2*time.Second); ; {
		named, err := o.rename(outputs, u)
		switch {
		case err == nil, ctx.Err() != nil:
			return named, err
		case !errors.Is(err, files.ErrInstance):
			failing = time.Time{}
		case failing.IsZero():
			failing = time.Now()
		case time.Since(failing) > r.d.Files.Patience():
			return nil, err
		}
		if trouble.IsNews(err) {
			r.log.Warn("cannot register outputs yet, will try again", "step", "name outputs", "error", err)
		}
		if !pauses.Wait(ctx) {
			return nil, ctx.Err()
		}
		if conn := r.d.Links.Get(o.conn().Name); conn != nil {
			moved(conn) // it may have come back at another address
		}
	}
}

// settle waits until the hub has every file of a finished run. That lasts as long as the storage
// takes no files, so the client may end it earlier.
func (r collecting) settle(ctx context.Context) result {
	if !r.files.pending() {
		return r.settled(ctx, r.files.settle(ctx))
	}
	res, err := r.meanwhile(ctx, "waiting for the files of a run", r.files.settle)
	if res.kind != undecided {
		return res
	}
	return r.settled(ctx, err)
}

// meanwhile does work for a run that its instance has finished, and pays attention to what happens
// to the run in the meantime: if that ends the run, the work is given up.
func (r collecting) meanwhile(ctx context.Context, work string, do func(context.Context) error) (result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	r.beside(work, func() {
		done <- do(ctx)
		r.mail.put(runEvent{kind: workDone})
	})
	for {
		// There is nothing to time out for: each event comes by itself.
		e, err := r.mail.next(ctx, time.Hour)
		if err != nil {
			return result{kind: dropped}, nil
		}
		switch e.kind {
		case workDone:
			return result{}, <-done
		case cancelAsked:
			r.wish = max(r.wish, cancelled)
			return r.cancelledEnd(), nil
		case withdrawAsked:
			showing(r).withdraw()
			return r.cancelledEnd(), nil
		case leaseLost:
			return result{kind: dropped}, nil
		case hubFailed:
			return result{kind: crashed}, nil
		case moved:
			r.conn = e.conn
		case partMoved:
			showing(r).aside()
		case frameArrived, socketUp, lookAsked, heldElsewhere, socketDown, takeBackAsked, evictAsked, partHeard, movedUp, idleReported, silence: // the instance has finished with it
		}
	}
}

// settled returns what becomes of a finished run once its files are here, or never will be.
func (r collecting) settled(ctx context.Context, err error) result {
	switch {
	case err == nil:
		return result{}
	case ctx.Err() != nil:
		return result{kind: dropped}
	case errors.Is(err, panics.ErrPanic):
		return result{kind: crashed}
	case errors.Is(err, files.ErrStorage):
		// The client is shown the reason, and the error tells where the storage is.
		r.log.Error("cannot store an output file", "error", err)
		return result{kind: hopeless, reason: "the hub's storage does not take an output file"}
	case errors.Is(err, files.ErrGone) && len(r.cached) > 0:
		// It named a file of an earlier run, which somebody has deleted, and would name it again.
		dropCache(ctx, r.conn)
	}
	return result{kind: lost, cause: Results, reason: err.Error()}
}

// dropCache makes an instance forget the results of earlier runs.
func dropCache(ctx context.Context, conn *instance.Link) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := conn.Client.Free(ctx, false, true); err != nil {
		conn.Log.Debug("cannot free the instance's memory", "error", err)
	}
	conn.Loads(nil)
}
