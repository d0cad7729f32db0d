// Package retry is how every loop here waits before it tries again: with pauses
// that double up to a bound, and with jitter, so that all that lost one server
// do not come back to it at the same moment.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// jitter is how far a pause may lie from the one that is due, as a part of it.
const jitter = 0.5

// Backoff gives the pauses of one loop. It is not safe for concurrent use.
type Backoff struct{ pauses backoff.ExponentialBackOff }

// New returns a Backoff whose first pause is between half of first and one and a
// half times first. Each later one is about twice as long, and none is longer
// than most, which is first or more.
func New(first, most time.Duration) *Backoff {
	// The library bounds a pause before the jitter, not after it.
	longest := time.Duration(float64(most) / (1 + jitter))
	return &Backoff{backoff.ExponentialBackOff{
		InitialInterval: min(first, longest), MaxInterval: longest, Multiplier: 2, RandomizationFactor: jitter,
	}}
}

// Next returns how long to wait before the next attempt.
func (b *Backoff) Next() time.Duration { return b.pauses.NextBackOff() }

// Reset makes the next pause the first one again. Call it after a success.
func (b *Backoff) Reset() { b.pauses.Reset() }

// Wait waits for the next pause. It returns false when ctx ended before.
func (b *Backoff) Wait(ctx context.Context) bool { return Sleep(ctx, b.Next()) }

// Do calls try until it succeeds, or fails with an error that again refuses. It
// returns what try returned last, or ctx.Err() when ctx ends in a pause.
func (b *Backoff) Do(ctx context.Context, try func(context.Context) error, again func(error) bool) error {
	for {
		if err := try(ctx); err == nil || !again(err) {
			return err
		}
		if !b.Wait(ctx) {
			return ctx.Err()
		}
	}
}

// Sleep waits for d. It returns false when ctx ended before.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
