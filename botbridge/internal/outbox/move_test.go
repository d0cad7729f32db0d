package outbox

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// A chat with a new id is told of, and nothing is done to a message there that may be
// another.
func TestMovedChat(t *testing.T) {
	t.Parallel()
	f := &fake{fail: func(int) error { return &platform.MovedError{To: "-100"} }}
	var told []string
	b := New(Options{Moved: func(name, from, to string) { told = append(told, name+" "+from+" "+to) }})
	_, err := b.Send(t.Context(), f, home, platform.Post{Text: "x"})
	require.ErrorAs(t, err, new(*platform.MovedError))
	require.False(t, platform.Permanent(err))
	var marks []bool
	_, err = b.SendOnce(t.Context(), f, home, platform.Post{Text: "x"}, func(_ context.Context, sending bool) error {
		marks = append(marks, sending)
		return nil
	})
	require.ErrorAs(t, err, new(*platform.MovedError))
	require.Equal(t, []bool{true, false}, marks, "it certainly was not sent")
	require.ErrorIs(t, b.Edit(t.Context(), f, home, "1", platform.Post{Text: "x"}), platform.ErrGone)
	b.Close()
	require.Equal(t, []string{"fake 7 -100", "fake 7 -100", "fake 7 -100"}, told)
	require.Equal(t, 3, f.calls, "none is repeated")
}
