package outbox

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// worker is a platform that shows work for 5 s.
type worker struct {
	fake

	err error
}

func (w *worker) WorkLasts() time.Duration { return 5 * time.Second }

func (w *worker) Work(_ context.Context, to platform.Chat, makes platform.Media) error {
	_ = w.note("work " + to.ID + " " + string(makes))
	return w.err
}

func TestWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &worker{fake: fake{limits: platform.Limits{PerSecond: 10, ChatEvery: time.Second}}}
		b := New(Options{})
		for range 12 { // a minute
			for range 10 {
				b.Work(w, home, platform.Photo)
				time.Sleep(time.Second / 2)
			}
		}
		require.Len(t, w.heard(), 12, "once while it is shown")

		// What is said comes first, and waits for nothing.
		begin := time.Now()
		for range 3 {
			go func() { _, _ = b.Send(t.Context(), w, home, platform.Post{Text: "said"}) }()
		}
		synctest.Wait()
		b.Work(w, home, platform.Photo)
		time.Sleep(3 * time.Second)
		require.Len(t, slices.DeleteFunc(w.heard(), func(s string) bool { return s != "said" }), 3)
		require.Len(t, w.heard(), 12+3)
		require.Less(t, w.at[len(w.at)-1].Sub(begin), 2500*time.Millisecond)

		// Many chats share a tenth of the rate.
		before := len(w.heard())
		for range 10 {
			for _, chat := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				b.Work(w, platform.Chat{ID: chat}, "")
			}
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, len(w.heard())-before, 11)

		// A chat that does not take it is left alone.
		synctest.Wait()
		w.err = platform.ErrForbidden
		before = len(w.heard())
		for range 60 {
			b.Work(w, platform.Chat{ID: "gone"}, "")
			time.Sleep(6 * time.Second)
		}
		require.Len(t, w.heard(), before+1)
		b.Work(&w.fake, home, "") // a platform that cannot show it
		b.Close()
		b.Work(w, home, "")
		require.Len(t, w.heard(), before+1)
	})
}
