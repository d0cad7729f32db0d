package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

func TestPauses(t *testing.T) {
	t.Parallel()
	const first, most = 100 * time.Millisecond, 3 * time.Second
	seen := map[time.Duration]bool{}
	for range 200 {
		b := retry.New(first, most)
		due := first
		for range 10 {
			pause := b.Next()
			require.GreaterOrEqual(t, pause, due/2)
			require.LessOrEqual(t, pause, min(due*3/2, most)+1)
			due = min(2*due, most*2/3)
			seen[pause] = true
		}
		b.Reset()
		require.LessOrEqual(t, b.Next(), first*3/2+1)
	}
	require.Greater(t, len(seen), 1000, "pauses differ from loop to loop")
}

// A pause that does not grow has jitter, too.
func TestConstantPause(t *testing.T) {
	t.Parallel()
	b := retry.New(time.Second, time.Second)
	for range 100 {
		pause := b.Next()
		require.GreaterOrEqual(t, pause, time.Second/3)
		require.LessOrEqual(t, pause, time.Second+1)
	}
}

func TestDo(t *testing.T) {
	away, fatal := errors.New("away"), errors.New("fatal")
	isAway := func(err error) bool { return errors.Is(err, away) }
	type row struct {
		errs []error
		want error
	}
	beside.Cases(t, map[string]row{
		"at once":        {[]error{nil}, nil},
		"after two":      {[]error{away, away, nil}, nil},
		"another reason": {[]error{away, fatal}, fatal},
	}, func(t *testing.T, tt row) {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			err := retry.New(time.Second, time.Minute).Do(t.Context(), func(context.Context) error {
				tries++
				return tt.errs[tries-1]
			}, isAway)
			require.Equal(t, tt.want, err)
			require.Len(t, tt.errs, tries)
		})
	})
}

// The end of a context ends a pause at once.
func TestCancel(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := retry.New(time.Hour, time.Hour).Do(ctx, func(context.Context) error { return errors.New("away") }, func(error) bool { return true })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		require.False(t, retry.Sleep(ctx, time.Hour))
	})
}

func TestTrouble(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var trouble retry.Trouble
		refused := errors.New("dial 10.0.0.1:6379 from :41000: refused")
		require.True(t, trouble.IsNews(refused))
		require.False(t, trouble.IsNews(refused))
		require.False(t, trouble.IsNews(errors.New("dial 10.0.0.1:6379 from :41001: refused")), "another port of its own")
		require.True(t, trouble.IsNews(errors.New("out of memory")))
		require.True(t, trouble.IsNews(nil), "for an unknown reason")
		time.Sleep(59 * time.Second)
		require.False(t, trouble.IsNews(nil))
		time.Sleep(time.Second)
		require.True(t, trouble.IsNews(nil), "it lasts")
	})
}
