package sim

import (
	"context"
	"time"
)

// Clock controls simulated time. Tests use a clock that they drive themselves.
type Clock interface {
	// Sleep waits for a simulated duration. It returns early, with an error, if ctx
	// ends.
	Sleep(ctx context.Context, d time.Duration) error
}

// scaledClock is real time multiplied by a factor. With 0.01 it runs a hundred
// times faster.
type scaledClock float64

func (c scaledClock) Sleep(ctx context.Context, d time.Duration) error {
	d = time.Duration(float64(d) * float64(c))
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
