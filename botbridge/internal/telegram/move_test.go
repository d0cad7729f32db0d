package telegram

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// A group becomes a supergroup: both service messages say the same, and so does the answer to
// each call.
func TestMigration(t *testing.T) {
	t.Parallel()
	tg, fake := newTelegram(t, fakebot.Options{}, Options{PollTimeout: time.Second})
	group := platform.Chat{ID: "-9", Group: true}
	ids, err := tg.Send(t.Context(), group, platform.Post{Text: "x"})
	require.NoError(t, err)
	require.EqualValues(t, -1000000000009, fake.Migrate(-9, true))

	_, sent := tg.Send(t.Context(), group, platform.Post{Text: "x"})
	_, moderates := tg.Moderates(t.Context(), group, "5")
	for name, err := range map[string]error{
		"send": sent, "edit": tg.Edit(t.Context(), group, ids[0], platform.Post{Text: "y"}), "delete": tg.Delete(t.Context(), group, ids[0]),
		"moderates": moderates,
	} {
		var moved *platform.MovedError
		require.ErrorAs(t, err, &moved, name)
		require.Equal(t, "-1000000000009", moved.To)
	}

	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan platform.Event, 2)
	var listening sync.WaitGroup
	listening.Go(func() {
		_ = tg.Listen(ctx, func(_ context.Context, e platform.Event) error { events <- e; return nil })
	})
	defer listening.Wait()
	defer cancel()
	for range 2 {
		e := <-events
		require.Equal(t, platform.Moved, e.Kind)
		require.Equal(t, group, e.Chat)
		require.Equal(t, "-1000000000009", e.To)
	}
}
