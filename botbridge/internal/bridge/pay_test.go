package bridge

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// A payment waits behind nothing that its user says or presses, and is never left out: what
// there is no place for stays with the platform.
func TestPaymentsAreNeverLeftOut(t *testing.T) {
	t.Parallel()
	store, err := state.Open(context.WithoutCancel(t.Context()), state.Place{URL: "embedded", Dir: t.TempDir(), Prefix: "bot"}, state.Options{PerChat: 1})
	require.NoError(t, err)
	defer store.Close()
	texts, err := locale.Load("")
	require.NoError(t, err)
	guard, err := limits.New(limits.Config{}, store)
	require.NoError(t, err)
	p := &listener{said: map[string][]string{}}
	b := &Bridge{
		log: slog.New(slog.DiscardHandler), store: store, texts: texts, guard: guard, out: outbox.New(outbox.Options{}),
		platforms: map[string]platform.Platform{"telegram": p}, excused: map[string]bool{}, declined: map[string]time.Time{},
	}
	b.metrics = newMetrics(b)
	n := 0
	admit := func(kind platform.Kind) error {
		n++
		e := event(n, kind, "5", "5")
		if kind == platform.Checkout || kind == platform.Paid {
			e.Payment = &platform.Payment{}
		}
		return b.admit(t.Context(), e)
	}
	for _, kind := range []platform.Kind{platform.Said, platform.Pressed, platform.Checkout, platform.Checkout, platform.Paid} {
		require.NoError(t, admit(kind), kind)
	}
	require.ErrorIs(t, admit(platform.Paid), state.ErrFull)
	b.out.Close()
	require.Empty(t, p.said, "nobody is told of a question that is left out: the platform tells")
	waiting, err := store.Inbox.Waiting(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, waiting)
}
