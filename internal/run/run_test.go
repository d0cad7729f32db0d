package run

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// A step that fails for a reason nobody has thought of is not repeated for ever, and the log says
// so.
func TestUnknownErrorIsNotRepeatedForEver(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		log := &logtest.Log{}
		r := &Run{log: slog.New(slog.NewTextHandler(log, nil))}
		tries := 0
		broken := errors.New("WRONGTYPE")
		err := r.retry(t.Context(), "finish", func(context.Context) error { tries++; return broken })
		require.ErrorIs(t, err, broken)
		require.Equal(t, 1+maxUnknown, tries)
		require.Contains(t, log.String(), "will try again")

		tries = 0
		require.NoError(t, r.retry(t.Context(), "finish", func(context.Context) error {
			if tries++; tries < 100 {
				return queue.ErrUnavailable
			}
			return nil
		}), "Redis is waited for")
		for _, answer := range []error{queue.ErrStale, queue.ErrNotQueued, queue.ErrTaken, queue.ErrCapped, queue.ErrCancelled, queue.ErrExhausted} {
			tries = 0
			require.ErrorIs(t, r.retry(t.Context(), "claim", func(context.Context) error { tries++; return answer }), answer)
			require.Equal(t, 1, tries, "%v is an answer, which stays the same", answer)
		}
	})
}

// An instance can refuse a prompt before the hub has reported it as running there. The instance
// must not be shown as busy then, because nothing would ever make it idle again.
func TestRunThatEndsBeforeItIsShown(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		registry := fleet.NewRegistry()
		name := must(registry.AddStatic("http://127.0.0.1:8188"))
		registry.Observe(fleet.InstanceReport{Name: name, Up: true})
		state := func() fleet.State { i, _ := registry.Instance(name); return i.State }
		conn := linkTo(name, registry)
		one, two := &Run{claim: claim{own: job.Job{ID: "one"}}}, &Run{claim: claim{own: job.Job{ID: "two"}}}
		require.True(t, conn.Attach(one.Holder()))
		require.True(t, conn.Detach(one.Holder()))
		conn.Show(one.Holder())
		require.Equal(t, fleet.Idle, state())
		require.True(t, conn.Attach(two.Holder()))
		conn.Show(one.Holder())
		require.Equal(t, fleet.Idle, state())
		conn.Show(two.Holder())
		require.Equal(t, fleet.Busy, state())
		require.False(t, conn.Detach(one.Holder()))
		require.Equal(t, fleet.Busy, state(), "a run that was there before frees nothing")
		require.True(t, conn.Detach(two.Holder()))
		require.Equal(t, fleet.Idle, state())
	})
}

// A panic in a goroutine that works beside a run ends the run, and the log has the stack.
func TestPanicBesideARun(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		log, work := &logtest.Log{}, &panics.Group{}
		r := testRun(Around{Work: work, Logger: slog.New(slog.NewTextHandler(log, nil))}, job.Job{})
		r.beside("testing", func() { panic("broken") })
		work.Wait()
		e, err := r.mail.next(t.Context(), time.Minute)
		require.NoError(t, err)
		require.Equal(t, hubFailed, e.kind)
		require.Contains(t, log.String(), "TestPanicBesideARun.func")
	})
}
