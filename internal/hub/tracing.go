package hub

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/traces"
)

// flushTime bounds how long spans are exported after tracing was switched off, or when the
// hub closes: the collector may be away.
const flushTime = 2 * time.Second

// tracing is the hub's maker of spans, if there is one. Only tracer may be called by
// several goroutines.
type tracing struct{ now atomic.Pointer[traces.Tracer] }

// tracer is nil while there is none.
func (t *tracing) tracer() *traces.Tracer { return t.now.Load() }

// set switches tracing on or off. On stays as it is: the environment does not change.
func (t *tracing) set(ctx context.Context, on bool) error {
	switch {
	case !on:
		t.close(ctx)
	case t.now.Load() == nil:
		// What exports spans outlives the start.
		tracer, err := traces.Open(context.WithoutCancel(ctx), Version)
		if err != nil {
			return err
		}
		t.now.Store(tracer)
	}
	return nil
}

// close exports what is left.
func (t *tracing) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	_ = t.now.Swap(nil).Close(ctx) // the collector is away, and its spans with it
}
