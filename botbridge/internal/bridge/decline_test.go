package bridge

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// listener notes what it is told.
type listener struct {
	platform.Platform

	mu      sync.Mutex
	said    map[string][]string // by chat
	answers []string
}

func (l *listener) Name() string            { return "telegram" }
func (l *listener) Limits() platform.Limits { return platform.Limits{} }

func (l *listener) Send(_ context.Context, to platform.Chat, p platform.Post) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said[to.ID] = append(l.said[to.ID], p.Text)
	return []string{"1"}, nil
}

func (l *listener) Answer(_ context.Context, press, _ string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, press)
	return nil
}

// A chat that says more than can be handled is told so in one sentence.
func TestWhatIsLeftOutIsSaid(t *testing.T) {
	t.Parallel()
	store, err := state.Open(context.WithoutCancel(t.Context()), state.Place{URL: "embedded", Dir: t.TempDir(), Prefix: "bot"}, state.Options{PerChat: 1})
	require.NoError(t, err)
	defer store.Close()
	texts, err := locale.Load("")
	require.NoError(t, err)
	guard, err := limits.New(limits.Config{AllowChats: []string{"telegram:-1"}}, store)
	require.NoError(t, err)
	p := &listener{said: map[string][]string{}}
	b := &Bridge{
		log: slog.New(slog.DiscardHandler), store: store, texts: texts, guard: guard, out: outbox.New(outbox.Options{}),
		platforms: map[string]platform.Platform{"telegram": p}, excused: map[string]bool{}, declined: map[string]time.Time{},
	}
	b.metrics = newMetrics(b)
	n := 0
	admit := func(kind platform.Kind, chat string) {
		n++
		e := event(n, kind, chat, "5")
		e.Press = e.ID
		require.NoError(t, b.admit(t.Context(), e))
	}
	for range 5 {
		admit(platform.Said, "-1")
	}
	admit(platform.Pressed, "-1") // has room of its own
	admit(platform.Pressed, "-1")
	for range 2 {
		admit(platform.Said, "-2") // a group that may not use the bridge
	}
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.said["-1"]) == 1 && len(p.answers) == 1
	}, time.Minute, time.Millisecond)
	b.out.Close()
	require.Len(t, p.said["-1"], 1)
	require.Contains(t, p.said["-1"][0], "too much at once")
	require.Empty(t, p.said["-2"])
	require.Equal(t, []string{"7"}, p.answers)
	waiting, err := store.Inbox.Waiting(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, waiting)
}
