package shell

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// aFleet is a fleet with an instance in each state.
func aFleet() Fleet {
	ended, eta := int64(12345), 75.0
	f := Fleet{From: "localhost:2019", Operator: true, Stats: Stats{
		Queued: 9998, Running: 1, Sockets: 3, Ended: &ended, Switches: 120, Saved: 3400,
		Instances: map[string]int{"idle": 1, "busy": 1, "sick": 1, "offline": 1},
	}}
	for n, state := range []string{"idle", "busy", "offline", "sick"} {
		f.Instances = append(f.Instances, Instance{
			Name: fmt.Sprint("gpu-", n+1), State: state, GPU: "cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync",
			VRAMTotal: 24 << 30, VRAMFree: 6 << 30, LastSeen: 1_000_000 - int64(n)*70,
		})
	}
	f.Instances[1].Running = "3f2a9c00-1111"
	f.Instances[3].Reason = "its GPU\x1b[2J fails"
	f.Running = []FleetJob{{Job: Job{ID: "3f2a9c00-1111", Status: "running", Progress: 0.414, ETA: &eta, Created: 999_000, Started: 999_940}, Tenant: "ann", Instance: "gpu-2"}}
	f.Queued = []FleetJob{{Job: Job{ID: "next", Status: "queued", Created: 999_990}, Tenant: "Ünïcode 世界"}}
	return f
}

func TestFleetInOneScreen(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	var out strings.Builder
	aFleet().show(&out, false, 0, now)
	for _, want := range []string{
		"Hub        localhost:2019 (admin endpoint: everybody's jobs)\n",
		"Instances  4: 1 idle, 1 busy, 1 offline, 1 sick\n", "Jobs       1 running, 9,998 waiting, 12,345 ended\n",
		"Models     120 switches in 24 hours, 3,400 saved\n",
		"INSTANCE  STATE    RUNNING        VRAM        SEEN  GPU       NOTE\n" + "gpu-4     sick                    18.0/24 GB  3m    RTX 4090  its GPU?[2J fails\n",
		"gpu-2     busy     3f2a9c00-1111  18.0/24 GB  1m    RTX 4090\n", // programs need whole ids
		"41%, 1m left", "... and 9997 more jobs\n",
	} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "\x1b", "nobody's text reaches the terminal as a command")
	out.Reset()
	aFleet().show(&out, false, 40, now)
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "Hub") { // it says where, whatever the width
			require.LessOrEqual(t, runewidth.StringWidth(strings.TrimSpace(line)), 50, line)
		}
	}

	// 500 instances are one screen, and all of them with --all.
	f := aFleet()
	for n := range 500 {
		f.Instances = append(f.Instances, Instance{Name: fmt.Sprintf("many-%03d", n), State: "idle"})
	}
	out.Reset()
	f.show(&out, false, 80, now)
	require.Less(t, strings.Count(out.String(), "\n"), 2*shortList)
	require.Contains(t, out.String(), "more instances: --all shows them")
	out.Reset()
	f.show(&out, true, 80, now)
	require.Contains(t, out.String(), "many-499")
}

// What comes and goes by need has a line each, with why, and what it costs.
func TestSpareInOneScreen(t *testing.T) {
	t.Parallel()
	f := aFleet()
	require.NoError(t, json.Unmarshal([]byte(`{"classes": [
		{"class": "a10g", "wanted": 3, "have": 2, "starting": 1, "leaving": 0, "max": 4, "why": "9 jobs wait", "error": null, "price": 1.2, "spent_today": 3.204, "budget": 20},
		{"class": "old", "wanted": 0, "have": 1, "starting": 0, "leaving": 1, "max": 2, "why": "nothing to do", "error": "exit status 1"}],
		"overflow": [{"endpoint": "cloud", "running": 2, "spent_today": 20, "set_aside": 0.5, "price": 0.0003, "budget": 20, "closed": "its budget of the day is spent"},
			{"endpoint": "free", "running": 0, "spent_today": 0, "set_aside": 0, "price": 0, "closed": null}]}`), &f.Spare))
	var out strings.Builder
	f.show(&out, false, 0, time.Now())
	for _, want := range []string{
		"Machines   a10g: 2 of 3, at most 4; 1 starting; 3.20 of 20.00 spent today; 9 jobs wait\n",
		"Machines   old: 1 of 0, at most 2; 1 leaving; nothing to do; exit status 1\n",
		"Serverless cloud: 2 running; 20.00 of 20.00 spent today; 0.50 set aside; takes no runs: its budget of the day is spent\n",
		"Serverless free: 0 running\n",
	} {
		require.Contains(t, out.String(), want)
	}
}

func TestShortTimes(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 90 * time.Minute: "1h", 47 * time.Hour: "47h", 48 * time.Hour: "2d",
	} {
		require.Equal(t, want, short(d))
	}
}

func TestKeygen(t *testing.T) {
	t.Parallel()
	first, second := call(t, "", "keygen"), call(t, "", "keygen")
	require.Equal(t, ExitDone, first.code)
	require.NotEqual(t, first.out, second.out)
	key := must.Get(base64.StdEncoding.DecodeString(strings.TrimSpace(first.out)))(t)
	require.Len(t, key, 32)

	file := filepath.Join(t.TempDir(), "key")
	r := call(t, "", "keygen", file)
	require.Equal(t, ExitDone, r.code, r.errors)
	require.Empty(t, r.out, "a secret that is in a file is not shown")
	info := must.Get(os.Stat(file))(t)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	before := must.Get(os.ReadFile(file))(t)
	r = call(t, "", "keygen", file)
	require.Equal(t, ExitUsage, r.code)
	require.Contains(t, r.errors, "delete the file first")
	after := must.Get(os.ReadFile(file))(t)
	require.Equal(t, before, after)
	require.Equal(t, ExitUsage, call(t, "", "keygen", filepath.Join(file, "below")).code)
}

func TestNoteOfAnInstance(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local).Unix()
	for _, c := range []struct {
		i    Instance
		note string
	}{
		{Instance{}, ""},
		{Instance{Reserved: []string{"ada"}}, "only for ada"},
		{Instance{Reserved: []string{"ada"}, Reason: "it hangs"}, "it hangs"},
		{Instance{Reason: "it hangs", Restarts: 3, RestartAt: at}, "it hangs; restarted 3 times; next restart at 03:04:05"},
		{Instance{Restarts: 1, RestartError: "exit status 1"}, "restarted once; the last restart failed: exit status 1"},
	} {
		require.Equal(t, c.note, c.i.note())
	}
}

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
	beside.Bubble(t, func(t *testing.T) {
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

// On a terminal one line changes and never wraps; the last state stays.
func TestScreen(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newScreen(&out)
	s.width = func() int { return 40 }
	eta := 100.0
	s.show(Job{ID: "j", Status: StatusQueued, Position: new(int)})
	s.show(Job{ID: "j", Status: StatusProcessing, Progress: 0.5, ETA: &eta})
	s.say("a line")
	s.show(Job{ID: "j", Status: StatusFailed, Error: strings.Repeat("x", 50)})
	require.Equal(t, "\r\x1b[Kqueued, next\r\x1b[K[############------------] processing 5\na line\n\r\x1b[Kfailed: "+strings.Repeat("x", 50)+"\n", out.String())
}
