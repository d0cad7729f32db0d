package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/conversation"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// A payment that cannot be recorded is tried again until it can be: more often than anything
// else, while Redis is away and while a script fails, and by the next process if this one
// ends. A message that fails is left out.
func TestPaymentIsNeverGivenUp(t *testing.T) {
	t.Parallel()
	store, err := state.Open(context.WithoutCancel(t.Context()), state.Place{URL: "embedded", Dir: t.TempDir(), Prefix: "bot"}, state.Options{})
	require.NoError(t, err)
	defer store.Close()
	_, _, err = store.Lead(t.Context(), "one")
	require.NoError(t, err)
	paid, said := event(1, platform.Paid, "5", "5"), event(2, platform.Said, "5", "5")
	paid.Payment = &platform.Payment{Charge: "c1"}
	for _, e := range []platform.Event{paid, said} {
		_, err := store.Inbox.Admit(t.Context(), e.Key(), conversation.Lane(e), e)
		require.NoError(t, err)
	}

	var mu sync.Mutex
	tries := map[platform.Kind]int{}
	var mends atomic.Bool
	handle := func(_ context.Context, e platform.Event) error {
		mu.Lock()
		defer mu.Unlock()
		tries[e.Kind]++
		switch n := tries[e.Kind]; {
		case e.Kind == platform.Said:
			return errors.New("a script fails")
		case n <= 2:
			return fmt.Errorf("recording a payment: %w", state.ErrUnavailable)
		case !mends.Load():
			return errors.New("a script fails")
		}
		return nil
	}
	tried := func(kind platform.Kind) int {
		mu.Lock()
		defer mu.Unlock()
		return tries[kind]
	}
	waiting := func() int64 {
		n, err := store.Inbox.Waiting(t.Context())
		require.NoError(t, err)
		return n
	}
	run := func(until func() bool) {
		ctx, kill := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { newInbox(store, handle, slog.New(slog.DiscardHandler)).run(ctx) })
		require.Eventually(t, until, time.Minute, time.Millisecond)
		kill()
		running.Wait()
	}
	run(func() bool { return tried(platform.Paid) > handleTries && waiting() == 1 })
	require.Equal(t, handleTries, tried(platform.Said))
	before := tried(platform.Paid)
	run(func() bool {
		mends.Store(tried(platform.Paid) >= before+2)
		return waiting() == 0
	})
	require.Greater(t, tried(platform.Paid), before+2)
	require.Equal(t, handleTries, tried(platform.Said), "what was left out stays so")
}
