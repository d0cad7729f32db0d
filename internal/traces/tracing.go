package traces

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/config"
)

// flushTime bounds how long spans are exported after tracing was switched off, or when the hub
// closes: the collector may be away.
const flushTime = 2 * time.Second

// Tracing is the hub's tracer, if there is one. Only the method tracer may be called by several
// goroutines.
type Tracing struct{ now atomic.Pointer[Tracer] }

// Tracer returns the current tracer, nil if there is none.
func (t *Tracing) Tracer() *Tracer { return t.now.Load() }

// Set switches tracing on or off. If it is on, it stays as it is: the environment does not change.
func (t *Tracing) Set(ctx context.Context, on bool) error {
	switch {
	case !on:
		t.Close(ctx)
	case t.now.Load() == nil:
		// Whatever exports spans outlives the start.
		tracer, err := Open(context.WithoutCancel(ctx), config.Version)
		if err != nil {
			return err
		}
		t.now.Store(tracer)
	}
	return nil
}

// Close exports what is left.
func (t *Tracing) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	_ = t.now.Swap(nil).Close(ctx) // the collector is away, and its spans are lost with it
}
