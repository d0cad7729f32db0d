package hub

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// maxTrips is how many round trips to Redis one prompt takes, without the hinted ones.
const maxTrips = 12

// maxHinted bounds the round trips per prompt that follow hints. How many hints are
// answered together differs with the pace of the machine.
const maxHinted = 8

// hinted are the functions that are called for hints, or not at all: a body is read
// only where the hint of a job was faster than the answer that it was accepted.
var hinted = []string{"Queue).Classes", "Queue).Count", "Queue).Body"}

// trips counts the round trips to Redis by the code that made them.
type trips struct {
	mu    sync.Mutex
	first map[string]int // the order in which the places were met
	by    map[string]int
}

func newTrips() *trips { return &trips{first: map[string]int{}, by: map[string]int{}} }

// periodic are functions that ask Redis from time to time, whether there are prompts
// or not.
var periodic = []string{"Dispatcher).expire", "Dispatcher).keepLeases", "Dispatcher).watch", "Dispatcher).keepBeating", "Dispatcher).heal"}

func (t *trips) note(commands ...goredis.Cmder) {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var places []string
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		_, function, ours := strings.Cut(f.Function, "comfyhub/internal/")
		if !ours || strings.HasPrefix(function, "redis") || strings.HasPrefix(function, "hub.(*trips)") {
			continue
		}
		if slices.ContainsFunc(periodic, func(p string) bool { return strings.Contains(function, p) }) {
			return
		}
		places = append(places, function)
	}
	names := make([]string, len(commands))
	for i, c := range commands {
		names[i] = c.Name()
	}
	place := strings.Join(names, ",") + "  " + strings.Join(places[:min(len(places), 3)], " < ")
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by[place] == 0 {
		t.first[place] = len(t.first)
	}
	t.by[place]++
}

// total returns the number of round trips, those that follow hints apart.
func (t *trips) total() (n, hints int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for place, count := range t.by {
		if _, function, _ := strings.Cut(place, "  "); slices.ContainsFunc(hinted, func(h string) bool {
			return strings.HasPrefix(function, "queue.(*"+h)
		}) {
			hints += count
		} else {
			n += count
		}
	}
	return n, hints
}

// table lists the places with their round trips per prompt, the first one first.
func (t *trips) table(prompts int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	order := func(a, b string) int { return cmp.Compare(t.first[a], t.first[b]) }
	for _, place := range slices.SortedFunc(maps.Keys(t.by), order) {
		fmt.Fprintf(&b, "\n%6.2f  %s", float64(t.by[place])/float64(prompts), place)
	}
	return b.String()
}

func (t *trips) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (t *trips) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		t.note(cmd)
		return next(ctx, cmd)
	}
}

func (t *trips) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		t.note(cmds...)
		return next(ctx, cmds)
	}
}

// priced starts a hub with a Redis server and one instance, and has it run a prompt, so
// that all that is done once is done.
func priced(t testing.TB) (*bench, *server, *trips) {
	h := newBench(t, 1, func(h *bench) { h.id.Redis = redistest.Start(t).URL() })
	s := newServer(t, h.web.URL)
	s.end(s.post(0))
	counted := newTrips()
	h.hub.db.Client().AddHook(counted)
	return h, s, counted
}

func TestPriceOfAPrompt(t *testing.T) {
	t.Parallel()
	_, s, counted := priced(t)
	const prompts = 20
	for n := range prompts {
		s.end(s.post(n + 1))
	}
	total, hints := counted.total()
	require.Positive(t, total)
	const once = prompts / 2 // the first use of a script takes two
	require.LessOrEqual(t, total, maxTrips*prompts+once, "too many round trips per prompt:%s", counted.table(prompts))
	require.LessOrEqual(t, hints, maxHinted*prompts, "too many looks per prompt:%s", counted.table(prompts))
}

// BenchmarkPrice counts the round trips to Redis per prompt, by the code that makes
// them.
func BenchmarkPrice(b *testing.B) {
	_, s, counted := priced(b)
	n := 0
	for b.Loop() {
		n++
		s.end(s.post(n))
	}
	total, hints := counted.total()
	b.ReportMetric(float64(total+hints)/float64(n), "trips/prompt")
	if n > 1 { // the first call only finds out how long one takes
		b.Log(counted.table(n))
	}
}
