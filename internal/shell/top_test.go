package shell

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/mattn/go-runewidth"
	"github.com/stretchr/testify/require"
)

// fakeView is a view of a fleet that a test makes.
type fakeView struct {
	fleet     Fleet
	err       error
	cancelled []string
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

func (f *fakeView) cancelJob(_ context.Context, tenant, id string) (bool, error) {
	f.cancelled = append(f.cancelled, tenant+"/"+id)
	return true, nil
}

func (f *fakeView) name() (from string, operator bool) { return "here", false }

// topOf is a top that has read a fleet, in a terminal of a size.
func topOf(t *testing.T, v view, width, height int) *top {
	t.Helper()
	m := &top{ctx: t.Context(), view: v, interval: time.Second}
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.Update(m.look())
	return m
}

// press presses keys and does what they begin.
func press(m *top, keys ...string) {
	for _, key := range keys {
		if cmd := m.press(key); cmd != nil {
			m.Update(cmd())
		}
	}
}

// The screen is as large as the terminal, whatever is in it, and what is chosen is on it.
func TestTopFitsTheTerminal(t *testing.T) {
	t.Parallel()
	f := aFleet()
	for n := range 300 {
		f.Instances = append(f.Instances, Instance{Name: "many-" + strings.Repeat("x", n%40) + string(rune('a'+n%26)) + short(time.Duration(n)*time.Second), State: "idle"})
	}
	for _, size := range [][2]int{{80, 24}, {40, 12}, {200, 60}} {
		m := topOf(t, &fakeView{fleet: f}, size[0], size[1])
		for _, key := range []string{"", "end", "pgup", "up", "tab", "end", "home", "p", "d", "c"} {
			press(m, key)
			lines := strings.Split(m.screen(time.Unix(1_000_000, 0)), "\n")
			require.Len(t, lines, size[1], key)
			chosen := 0
			for _, line := range lines {
				if strings.Contains(line, reverse) {
					chosen++
				}
				line = strings.NewReplacer(reverse, "", dim, "", plain, "").Replace(line)
				require.LessOrEqual(t, runewidth.StringWidth(line), size[0], key)
				require.NotContains(t, line, "\x1b", "nobody's text steers the terminal")
			}
			require.Equal(t, 1, chosen, key)
		}
	}
}

// A job is cancelled once the user has confirmed it, also by the instance that runs it; any
// other key takes the question back.
func TestTopCancels(t *testing.T) {
	t.Parallel()
	v := &fakeView{fleet: aFleet()}
	m := topOf(t, v, 100, 30)
	press(m, "c")
	require.Contains(t, m.said, "no job to cancel", "the first instance runs nothing")
	press(m, "down", "down", "c")
	require.Contains(t, m.screen(time.Now()), "cancel 3f2a9c00-1111 of ann? y does it")
	press(m, "n", "y")
	require.Empty(t, v.cancelled)
	press(m, "c", "y")
	require.Equal(t, []string{"ann/3f2a9c00-1111"}, v.cancelled)
	require.Contains(t, m.screen(time.Now()), "cancelled 3f2a9c00-1111")

	press(m, "tab", "down", "c", "y")
	require.Equal(t, "Ünïcode 世界/next", v.cancelled[1])

	// What is chosen stays chosen where its row moves.
	v.fleet.Running = nil
	m.Update(m.look())
	require.Equal(t, 0, m.row(jobPane))
	require.Equal(t, "next", m.chosen[jobPane])
}

// A user's view cannot drain or pause, and says who can.
func TestTopOfAUser(t *testing.T) {
	t.Parallel()
	m := topOf(t, &fakeView{fleet: aFleet()}, 120, 30)
	for _, key := range []string{"d", "p"} {
		press(m, key)
		require.Contains(t, m.screen(time.Now()), "only the operator can do this")
	}
	require.NotNil(t, m.press("q"), "it quits")
}

// While the hub does not answer, the last state stays on the screen, with how old it is.
func TestTopWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	v := &fakeView{fleet: aFleet()}
	m := topOf(t, v, 100, 30)
	v.err = errors.New("connection refused")
	m.Update(m.look())
	screen := m.screen(m.at.Add(12 * time.Second))
	require.Contains(t, screen, "no answer for 12s: connection refused")
	require.Contains(t, screen, "gpu-4")
	never := &top{ctx: t.Context(), view: v}
	require.Contains(t, never.screen(time.Now()), "reading the fleet")
	never.Update(never.look())
	require.Contains(t, never.screen(time.Now()), "connection")
}

// The rate is that of the last minute, and none where the hub tells none.
func TestTopRate(t *testing.T) {
	t.Parallel()
	m := &top{}
	_, known := m.rate()
	require.False(t, known)
	start := time.Unix(0, 0)
	for second := range 121 {
		ended := int64(min(second, 60)) // one a second, then none
		m.take(Fleet{Stats: Stats{Ended: &ended}}, start.Add(time.Duration(second)*time.Second))
		require.LessOrEqual(t, len(m.ended), 62)
		if second == 60 {
			rate, known := m.rate()
			require.True(t, known)
			require.InDelta(t, 60, rate, 0.1)
		}
	}
	rate, known := m.rate()
	require.True(t, known)
	require.InDelta(t, 0, rate, 0.1)
}
