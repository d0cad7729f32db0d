package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/conversation"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
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
	store, err := state.Open(context.WithoutCancel(t.Context()), state.Place{URL: "embedded", Dir: t.TempDir(), Prefix: "bot"}, state.Options{})
	require.NoError(t, err)
	defer store.Close()
	_, leads, err := store.Lead(t.Context(), "one")
	require.NoError(t, err)
	require.True(t, leads)
	admit := func(e platform.Event) {
		fresh, err := store.Inbox.Admit(t.Context(), e.Key(), conversation.Lane(e), e)
		require.NoError(t, err)
		require.True(t, fresh)
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
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { newInbox(store, h.handle, slog.New(slog.DiscardHandler)).run(ctx) })
	defer running.Wait()
	defer cancel()
	all := func(platform.Event) bool { return true }
	require.Eventually(t, func() bool { return h.count(all) == 2 }, time.Minute, time.Millisecond, "the button and the private chat")
	close(h.open)
	require.Eventually(t, func() bool { return h.count(all) == n }, time.Minute, time.Millisecond)
	last := map[string]int{}
	for _, e := range h.list {
		if e.Kind == platform.Said {
			var id int
			_, err := fmt.Sscan(e.ID, &id)
			require.NoError(t, err)
			require.Greater(t, id, last[e.Chat.ID], "the messages of a chat keep their order")
			last[e.Chat.ID] = id
		}
	}
}

// An event that cannot be read is left out and keeps nothing waiting.
func TestUnreadableEvent(t *testing.T) {
	t.Parallel()
	store, err := state.Open(context.WithoutCancel(t.Context()), state.Place{URL: "embedded", Dir: t.TempDir(), Prefix: "bot"}, state.Options{})
	require.NoError(t, err)
	defer store.Close()
	_, _, err = store.Lead(t.Context(), "one")
	require.NoError(t, err)
	_, err = store.Inbox.Admit(t.Context(), "telegram/1", "telegram|private|5", "no event")
	require.NoError(t, err)
	_, err = store.Inbox.Admit(t.Context(), "telegram/2", "telegram|private|5", event(2, platform.Said, "5", "5"))
	require.NoError(t, err)
	h := &handled{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { newInbox(store, h.handle, slog.New(slog.DiscardHandler)).run(ctx) })
	defer running.Wait()
	defer cancel()
	require.Eventually(t, func() bool {
		left, err := store.Inbox.Waiting(t.Context())
		return err == nil && left == 0
	}, time.Minute, time.Millisecond)
	require.Equal(t, 1, h.count(func(platform.Event) bool { return true }))
}
