package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/config"
	"github.com/comfyhub/comfyhub/botbridge/internal/conversation"
	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func event(n int, kind platform.Kind, chat string, user string) platform.Event {
	return platform.Event{
		ID: fmt.Sprint(n), Platform: "telegram", Kind: kind, User: platform.User{ID: user},
		Chat: platform.Chat{ID: chat, Group: chat[0] == '-'},
	}
}

// handled notes which events are handled. Messages in groups are held up for as long
// as it is open.
type handled struct {
	open chan struct{}

	mu   sync.Mutex
	list []platform.Event
}

func (h *handled) handle(ctx context.Context, e platform.Event) error {
	if e.Chat.Group && e.Kind != platform.Pressed {
		select {
		case <-h.open:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, e)
	return nil
}

func (h *handled) count(fits func(platform.Event) bool) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.list {
		if fits(e) {
			n++
		}
	}
	return n
}

// Groups whose platform holds them up keep neither a button nor a private chat waiting.
func TestBusyGroupsStarveNobody(t *testing.T) {
	t.Parallel()
	store := newStore(t, state.Options{})
	admit := func(e platform.Event) {
		require.True(t, must.Get(store.Inbox.Admit(t.Context(), e.Key(), conversation.Lane(e), e))(t))
	}
	const groups, each = 120, 5
	n := 0
	for g := range groups {
		for range each {
			n++
			admit(event(n, platform.Said, fmt.Sprint(-1-g), "5"))
		}
	}
	n++
	admit(event(n, platform.Pressed, "-1", "5"))
	n++
	admit(event(n, platform.Said, "5", "5"))

	h := &handled{open: make(chan struct{})}
	runs(t, store, h.handle)
	all := func(platform.Event) bool { return true }
	require.Eventually(t, func() bool { return h.count(all) == 2 }, time.Minute, time.Millisecond, "the button and the private chat")
	close(h.open)
	require.Eventually(t, func() bool { return h.count(all) == n }, time.Minute, time.Millisecond)
	last := map[string]int{}
	for _, e := range h.list {
		if e.Kind == platform.Said {
			var id int
			must.Get(fmt.Sscan(e.ID, &id))(t)
			require.Greater(t, id, last[e.Chat.ID], "the messages of a chat keep their order")
			last[e.Chat.ID] = id
		}
	}
}

// An event that cannot be read is left out and keeps nothing waiting.
func TestUnreadableEvent(t *testing.T) {
	t.Parallel()
	store := newStore(t, state.Options{})
	must.Get(store.Inbox.Admit(t.Context(), "telegram/1", "telegram|private|5", "no event"))(t)
	must.Get(store.Inbox.Admit(t.Context(), "telegram/2", "telegram|private|5", event(2, platform.Said, "5", "5")))(t)
	h := &handled{}
	runs(t, store, h.handle)
	require.Eventually(t, func() bool {
		left, err := store.Inbox.Waiting(t.Context())
		return err == nil && left == 0
	}, time.Minute, time.Millisecond)
	require.Equal(t, 1, h.count(func(platform.Event) bool { return true }))
}

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

// newStore is a state of the test's own, which the test leads.
func newStore(t *testing.T, o state.Options) *state.Store {
	t.Helper()
	store := must.Get(state.Open(context.WithoutCancel(t.Context()), state.Place{URL: "embedded", Dir: t.TempDir(), Prefix: "bot"}, o))(t)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	_, leads, err := store.Lead(t.Context(), "one")
	require.NoError(t, err)
	require.True(t, leads)
	return store
}

// newBridge is a bridge to a listener, in which one message of a chat may wait.
func newBridge(t *testing.T, c limits.Config) (*Bridge, *listener) {
	t.Helper()
	store, p := newStore(t, state.Options{PerChat: 1}), &listener{said: map[string][]string{}}
	b := &Bridge{
		log: slog.New(slog.DiscardHandler), store: store, texts: must.Get(locale.Load(""))(t), guard: must.Get(limits.New(c, store))(t),
		out: outbox.New(outbox.Options{}), platforms: map[string]platform.Platform{"telegram": p}, excused: map[string]bool{}, declined: map[string]time.Time{},
	}
	b.metrics = newMetrics(b)
	return b, p
}

// runs has events handled until the test ends.
func runs(t *testing.T, store *state.Store, handle func(context.Context, platform.Event) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { newInbox(store, handle, slog.New(slog.DiscardHandler)).run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// A chat that says more than can be handled is told so in one sentence.
func TestWhatIsLeftOutIsSaid(t *testing.T) {
	t.Parallel()
	b, p := newBridge(t, limits.Config{AllowChats: []string{"telegram:-1"}})
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
	require.EqualValues(t, 3, must.Get(b.store.Inbox.Waiting(t.Context()))(t))
}

// A payment waits behind nothing that its user says or presses, and is never left out: what
// there is no place for stays with the platform.
func TestPaymentsAreNeverLeftOut(t *testing.T) {
	t.Parallel()
	b, p := newBridge(t, limits.Config{})
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
	require.EqualValues(t, 4, must.Get(b.store.Inbox.Waiting(t.Context()))(t))
}

// A payment that cannot be recorded is tried again until it can be: more often than anything
// else, while Redis is away and while a script fails, and by the next process if this one
// ends. A message that fails is left out.
func TestPaymentIsNeverGivenUp(t *testing.T) {
	t.Parallel()
	store := newStore(t, state.Options{})
	paid, said := event(1, platform.Paid, "5", "5"), event(2, platform.Said, "5", "5")
	paid.Payment = &platform.Payment{Charge: "c1"}
	for _, e := range []platform.Event{paid, said} {
		must.Get(store.Inbox.Admit(t.Context(), e.Key(), conversation.Lane(e), e))(t)
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
	waiting := func() int64 { return must.Get(store.Inbox.Waiting(t.Context()))(t) }
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
	run(func() bool { mends.Store(tried(platform.Paid) >= before+2); return waiting() == 0 })
	require.Greater(t, tried(platform.Paid), before+2)
	require.Equal(t, handleTries, tried(platform.Said), "what was left out stays so")
}

// A bridge that the hub does not let in is not ready, and says why.
func TestDeniedIsNotReady(t *testing.T) {
	t.Parallel()
	store := newStore(t, state.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	hub := must.Get(hubapi.New(server.URL, hubapi.Options{}))(t)
	defer hub.Close()
	b := &Bridge{store: store, hub: hub}
	ready := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		b.ready(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health/ready", http.NoBody))
		return w
	}
	require.Equal(t, http.StatusOK, ready().Code)
	_, err := hub.Stats(t.Context())
	require.ErrorIs(t, err, hubapi.ErrDenied)
	require.Equal(t, http.StatusServiceUnavailable, ready().Code)
	require.Contains(t, ready().Body.String(), "does not accept the key")
}

// A price that nobody can pay is found before anybody asks.
func TestPricesThatNobodyCanPay(t *testing.T) {
	t.Parallel()
	graph := []byte(`{"1": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}, "_meta": {"title": "count"}}}`)
	for _, c := range []struct {
		stars    int64
		telegram *config.Telegram
		want     string
	}{
		{0, nil, ""},
		{2500, &config.Telegram{}, ""},
		{2501, &config.Telegram{}, "command a: stars: 2501 for each of 4 pictures is more than the 10000 that Telegram takes at once"},
		{1, nil, "people can pay only on Telegram"},
	} {
		spec := workflow.Spec{Stars: c.stars, Inputs: map[workflow.Role]string{workflow.Count: "1.batch_size"}}
		command := must.Get(workflow.NewCommand("a", spec, graph))(t)
		got := errors.Join(sellProblems(&config.Config{Telegram: c.telegram, Commands: config.Commands{{Name: "a", Spec: spec}}}, []*workflow.Command{command})...)
		if c.want == "" {
			require.NoError(t, got)
		} else {
			require.ErrorContains(t, got, c.want)
		}
	}
}
