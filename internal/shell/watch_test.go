package shell

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/stretchr/testify/require"
)

// fakeView is a view of a fleet that a test makes.
type fakeView struct {
	fleet Fleet
	err   error
}

func (f *fakeView) get(_ context.Context, path string, query url.Values, v any) error {
	switch to := v.(type) {
	case *Stats:
		*to = f.fleet.Stats
	case *[]Instance:
		*to = append([]Instance(nil), f.fleet.Instances...)
	case *[]FleetJob:
		*to = map[string][]FleetJob{"running": f.fleet.Running, "queued": f.fleet.Queued}[query.Get("status")]
	default:
		return errors.New(path)
	}
	return f.err
}

func (f *fakeView) name() (from string, operator bool) { return "here", false }

// A watched fleet is as large as the terminal. While the hub does not answer, the last state
// stays with how old it is.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &fakeView{fleet: aFleet()}
		for range 300 {
			v.fleet.Instances = append(v.fleet.Instances, Instance{Name: strings.Repeat("x", 40), State: "idle"})
		}
		var out strings.Builder
		s := newScreen(&out)
		s.width, s.height = func() int { return 40 }, func() int { return 12 }
		drawn := func() string {
			screens := strings.Split(out.String(), redraw)
			screen, found := strings.CutSuffix(screens[len(screens)-1], clearBelow)
			require.True(t, found)
			lines := strings.Split(screen, clearLine+"\n")
			require.LessOrEqual(t, len(lines), 12)
			for _, line := range lines {
				require.LessOrEqual(t, runewidth.StringWidth(line), 40)
				require.NotContains(t, line, "\x1b", "nobody's text steers the terminal")
			}
			return screen
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.watch(ctx, v, true) }()
		synctest.Wait()
		require.Contains(t, drawn(), "9,998 waiting")
		require.Contains(t, drawn(), "gpu-4")

		v.fleet.Stats.Queued = 7
		time.Sleep(watchPause)
		synctest.Wait()
		require.Contains(t, drawn(), " 7 waiting")

		v.err = errors.New("connection refused")
		time.Sleep(12 * watchPause)
		synctest.Wait()
		require.Contains(t, drawn(), "NO ANSWER for 12s: connection refuse")
		require.Contains(t, drawn(), " 7 waiting")
		cancel()
		require.NoError(t, <-ended)
		require.ErrorIs(t, s.watch(t.Context(), v, true), v.err, "a hub that never answered is none to watch")
	})
}
