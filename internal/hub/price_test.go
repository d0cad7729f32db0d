package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// maxTrips is the most round trips to Redis that one prompt takes, not counting the hinted ones.
const maxTrips = 6

// maxHinted bounds the round trips per prompt that follow hints or time. How many hints are
// answered together differs with the pace of the machine.
const maxHinted = 6

// hinted are the functions that are called for hints, together for several prompts, or not at all:
// a body is read only where the hint of a job was faster than the answer that it was accepted, and
// jobs are counted only where a hint was faster than the reply to an end. An instance is released
// apart from the end of its job only where that takes long.
var hinted = regexp.MustCompile(`queue\.\(\*\w+\)\.(Window|Classes|Body|Count|DeliveredEnds|Release)`)

// trips counts the round trips to Redis by the code that made them.
type trips struct {
	mu sync.Mutex
	by map[string]int
}

func newTrips() *trips { return &trips{by: map[string]int{}} }

// periodic are functions that ask Redis from time to time, whether there are prompts or not.
var periodic = []string{
	"Waiting).expire", "Leases).Keep", "Leases).Tend", "Leases).Heal", "Watchdog).watch", "Heartbeat).Beat", "Durations).Tend", "waitLine).tend",
	"Keys).Follow", "stops).run", "Streams).heartbeat", "Roster).Run", "Ends).look",
}

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
	if commands[0].Name() == "info" { // the benchmark's own
		return
	}
	names := make([]string, len(commands))
	for i, c := range commands {
		names[i] = c.Name()
	}
	name := strings.Join(names, ",") + "  " + strings.Join(places[:min(len(places), 3)], " < ")
	t.mu.Lock()
	defer t.mu.Unlock()
	t.by[name]++
}

// total returns the number of round trips, those that follow hints apart.
func (t *trips) total() (n, hints int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, count := range t.by {
		if _, function, _ := strings.Cut(name, "  "); hinted.MatchString(function) {
			hints += count
		} else {
			n += count
		}
	}
	return n, hints
}

// table lists the places with their round trips per prompt.
func (t *trips) table(prompts int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := &strings.Builder{}
	b.WriteString("\n trips  commands and code")
	for _, name := range slices.Sorted(maps.Keys(t.by)) {
		fmt.Fprintf(b, "\n%6.2f  %s", float64(t.by[name])/float64(prompts), name)
	}
	return b.String()
}

func (t *trips) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (t *trips) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		defer t.note(cmd)
		return next(ctx, cmd)
	}
}

func (t *trips) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		defer t.note(cmds...)
		return next(ctx, cmds)
	}
}

// priced starts a hub with a Redis server and one instance, and has it run a prompt, so
// that all that is done once is done.
func priced(t testing.TB) (*bench, *server, *trips) {
	h := newBench(t, 1, func(h *bench) { h.id.Redis = redisInMemory(t) })
	s := newServer(t, h.web.URL)
	s.end(s.post(0))
	counted := newTrips()
	h.hub.DB.Client().AddHook(counted)
	return h, s, counted
}

func TestPriceOfAPrompt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
	})
}

// redisCPU is how long the Redis server has worked.
func redisCPU(t testing.TB, h *bench) time.Duration {
	info := must(h.hub.DB.Client().Info(t.Context(), "cpu").Result())(t)
	var sum float64
	for line := range strings.Lines(info) {
		for _, field := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), field); ok {
				seconds := must(strconv.ParseFloat(text, 64))(t)
				sum += seconds
			}
		}
	}
	require.Positive(t, sum)
	return time.Duration(sum * float64(time.Second))
}

// BenchmarkPrice prints the round trips of a prompt to Redis by the code that makes them. It also measures
// the processor time of Redis.
func BenchmarkPrice(b *testing.B) {
	h, s, counted := priced(b)
	busy := redisCPU(b, h)
	var took time.Duration
	n := 0
	for b.Loop() {
		n++
		began := time.Now()
		s.end(s.post(n))
		took += time.Since(began)
	}
	busy = redisCPU(b, h) - busy
	total, hints := counted.total()
	b.ReportMetric(float64(total+hints)/float64(n), "trips/prompt")
	b.ReportMetric(busy.Seconds()*1000/float64(n), "redis-cpu-ms/prompt")
	if n > 1 { // the first call only finds out how long one takes
		b.Logf("POST to end: %.2f ms%s", took.Seconds()*1000/float64(n), counted.table(n))
	}
}

// However many ids a client deletes, the hub asks Redis a few times, and the sockets of
// others ask nothing.
func TestManyIdsAreFewRoundTrips(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) { b.id.Redis = redisInMemory(t) })
		running := b.begins(endless(1), "ann")
		var ids []string
		for n := range 40 {
			ids = append(ids, b.submit(picture(n), "ann"))
		}
		for n := range 30 {
			b.dial(fmt.Sprint("other", n))
		}
		for n := range 1000 {
			ids = append(ids, fmt.Sprintf("unknown%d", n))
		}
		order := must(json.Marshal(map[string]any{"delete": ids}))(t)
		synctest.Wait() // the sockets have arrived
		counted := newTrips()
		b.hub.DB.Client().AddHook(counted)
		var unknown []string
		for range 500 {
			unknown = append(unknown, uuid.NewString())
		}
		cancel := must(json.Marshal(map[string]any{"job_ids": unknown}))(t)
		before, _ := counted.total()
		b.posts("/api/jobs/cancel", string(cancel))
		after, _ := counted.total()
		require.LessOrEqual(t, after-before, 10, "cancel:%s", counted.table(1))
		for path, most := range map[string]int{"/history": 12, "/queue": 30} {
			before, _ := counted.total()
			b.posts(path, string(order))
			if path == "/queue" {
				eventually(t, func() bool {
					live, err := b.hub.Jobs.Live(t.Context(), job.DefaultTenant)
					return err == nil && len(live) == 1 && live[0].ID == running
				}, time.Minute, time.Millisecond)
			}
			after, _ := counted.total()
			require.LessOrEqual(t, after-before, most, "%s:%s", path, counted.table(1))
		}
		// What is named a thousand times costs what it costs once, whether it runs or waits.
		again := func(name, id string) string {
			return string(must(json.Marshal(map[string]any{name: slices.Repeat([]string{id}, 1000)}))(t))
		}
		before, _ = counted.total()
		b.posts("/queue", again("delete", running))
		b.posts("/api/jobs/cancel", again("job_ids", b.submit(work(1, 99, "none"), "ann")))
		after, _ = counted.total()
		require.LessOrEqual(t, after-before, 40, counted.table(1))
	})
}

// Pages list all jobs at every status. Each body is unpacked by itself, and read from Redis once.
func TestListedJobsAreReadOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) { b.id.Redis = redisInMemory(t) })
		b.begins(endless(1), "ann")
		for n := range 5 {
			b.submit(picture(n), "ann")
		}
		for _, path := range []string{"/api/jobs", "/api/jobs?workflow_id=none"} {
			b.gets(path)
			counted := newTrips()
			b.hub.DB.Client().AddHook(counted)
			b.gets(path)
			require.NotContains(t, counted.table(1), "Bod", path)
		}
	})
}

// server is anything that answers like ComfyUI, and a socket to it.
type server struct {
	b    testing.TB
	url  string
	conn *websocket.Conn
}

func newServer(b testing.TB, url string) *server {
	b.Helper()
	conn, _, err := websocket.Dial(b.Context(), url+"/ws?clientId=bench", nil)
	require.NoError(b, err)
	conn.SetReadLimit(-1)
	b.Cleanup(func() { conn.CloseNow() })
	return &server{b: b, url: url, conn: conn}
}

// post posts a picture of one colour and returns the prompt's id.
func (s *server) post(colour int) string {
	resp, err := http.Post(s.url+"/prompt", "application/json", strings.NewReader(fmt.Sprintf(`{"prompt": %s, "client_id": "bench"}`, picture(colour))))
	require.NoError(s.b, err)
	status, body := read(s.b, resp)
	require.Equal(s.b, http.StatusOK, status, string(body))
	return idOf(s.b, body)
}

// end reads to the end of a prompt.
func (s *server) end(id string) {
	for {
		kind, data, err := s.conn.Read(s.b.Context())
		require.NoError(s.b, err)
		var m message
		if kind != websocket.MessageText || json.Unmarshal(data, &m) != nil {
			continue
		}
		if m.Type == "executing" && m.Data.Node == nil && m.Data.PromptID == id {
			return
		}
	}
}
