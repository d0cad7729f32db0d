package request

import (
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// earned reports whether the payment bought anything: a file was shown, or may have
// arrived, as there is a button that sends it again.
func (r *Record) earned() bool {
	if r.Outcome != Done {
		return false
	}
	for _, out := range r.Outputs {
		if out.State == Arrived || out.State == Unsure || out.State == TooBig && out.Link != "" {
			return true
		}
	}
	for _, text := range r.Texts {
		if text.Told && !text.Lost {
			return true
		}
	}
	return false
}

// settleCharge decides whether the payment is refunded, before the request is over: if the
// bridge is killed in between, it decides the same again.
func (j *job) settleCharge(ctx context.Context) error {
	if j.rec.Charge == "" {
		return nil
	}
	to := state.Settled
	if !j.rec.earned() {
		to = state.Refund
	}
	err := retry.New(firstPause, maxPause).Do(ctx, func(ctx context.Context) error {
		_, err := j.r.o.Store.Settle(ctx, state.Charge{ID: j.rec.Charge, Price: j.rec.Paid}, to, 0)
		return err
	}, isUnavailable)
	if errors.Is(err, state.ErrNotFound) {
		j.r.o.Logger.Error("a payment is not known any more", "request", j.rec.ID, "charge", j.rec.Charge)
		return nil
	}
	return err
}
