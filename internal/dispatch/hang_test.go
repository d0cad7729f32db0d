package dispatch

import (
	"context"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// hanging is a connection to Redis on which the commands of some callers do not return.
type hanging struct {
	// of is the function whose commands hang; nil for none.
	of atomic.Pointer[string]
	// hung counts them.
	hung atomic.Int32
}

func (h *hanging) wait(ctx context.Context) error {
	of := h.of.Load()
	if of == nil {
		return nil
	}
	if !calledBy(*of) {
		return nil
	}
	h.hung.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

// calledBy reports whether a function is among the callers, given the end of its name.
func calledBy(function string) bool {
	var stack [64]uintptr
	frames := runtime.CallersFrames(stack[:runtime.Callers(1, stack[:])])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, function) {
			return true
		}
		if !more {
			return false
		}
	}
}

func (h *hanging) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *hanging) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if err := h.wait(ctx); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (h *hanging) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if err := h.wait(ctx); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// Leases are renewed and the hub's beats go on while Redis does not answer whoever looks
// after other runs.
func TestLeasesOutliveSlowWork(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"Dispatcher).heal", "Dispatcher).sweep", "Dispatcher).inherit"} {
		t.Run(strings.TrimPrefix(of, "Dispatcher)."), func(t *testing.T) {
			t.Parallel()
			var h hanging
			b := newDispatchingOn(t, redistest.Start(t).URL(), &h, 1, func(b *dispatching, c *Config) {
				b.settings.Lease = 300 * time.Millisecond // so long between two renewals; the queue's lasts 15 s
				c.Gone = func(context.Context, string) bool { return true }
			})
			key := b.submit(endless)
			b.runs(key)
			h.of.Store(&of)
			_, _, err := b.queue.Beat(t.Context(), "dead/1", time.Millisecond) // there is something to inherit
			require.NoError(t, err)
			eventually(t, func() bool { return h.hung.Load() > 0 }, deadline, 10*time.Millisecond)
			for range 3 {
				until := b.job(key).Run.LeaseUntil
				eventually(t, func() bool { return b.job(key).Run.LeaseUntil > until }, deadline, 10*time.Millisecond)
			}
		})
	}
}
