package sim

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim/replay"
)

// TestReplay plays every recorded scenario against the simulator and compares
// everything a client can see. Exceptions are in the table leftOut.
func TestReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("plays all recordings")
	}
	traces, err := replay.Traces()
	require.NoError(t, err)
	require.NotEmpty(t, traces)
	for _, tr := range traces {
		t.Run(tr.Version+"/"+tr.Name, func(t *testing.T) {
			if o, ok := omitted(tr, "", ""); ok {
				t.Skip(o.reason)
			}
			if slices.Contains(slow, tr.Name) && os.Getenv("COMFYHUB_SLOW") == "" {
				t.Skip("set COMFYHUB_SLOW=1 to play it")
			}
			t.Parallel()
			for _, d := range play(t, tr) {
				t.Error(d)
			}
		})
	}
}

// replayConfig is the configuration that the recorded server had.
func replayConfig(tr replay.Trace) Config {
	cfg := Config{
		Version: tr.Version, Overhead: 6 * time.Millisecond, ArrangeOutputs: tr.Arrange(),
		DisableAPINodes: true, IndexPage: "<!doctype html><title>dummy</title>\n", OmitClasses: []string{simulatedWork},
	}
	switch tr.Name {
	case "variant-cache-lru":
		cfg.Cache, cfg.CacheSize = cacheLRU, 10
	case "variant-multi-user":
		cfg.MultiUser = true
	case "variant-cors-compress":
		cfg.CORSOrigin = "http://ui.example"
	}
	return cfg
}

func play(t *testing.T, tr replay.Trace) []replay.Difference {
	clock := &replay.Clock{}
	face := clock.Face()
	cfg := replayConfig(tr)
	cfg.Dir, cfg.Clock = t.TempDir(), face
	srv, err := New(cfg)
	require.NoError(t, err)
	for _, name := range tr.OutputsBefore() {
		full := filepath.Join(srv.Dir(), "output", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, nil, 0o644))
	}
	for _, name := range tr.InputsBefore() {
		require.NoError(t, os.WriteFile(filepath.Join(srv.Dir(), "input", name), nil, 0o644))
	}
	srv.proc.numbers.counter = tr.Counter()
	web := httptest.NewServer(srv.Handler())
	defer web.Close()
	defer srv.Close()
	p := &replay.Player{
		Trace: tr, URL: web.URL, Clock: clock,
		Idle:  func() bool { return srv.Quiet(face.Sleepers()) },
		Local: []string{srv.files.base, "<path>", filepath.Dir(srv.files.base), "<path>"},
		Skip:  func(step, what string) bool { _, ok := omitted(tr, step, what); return ok },
		Kill:  srv.Kill, Restart: srv.Restart,
	}
	if tr.Name == "jobs-odd" {
		// The recorder cleared the history with requests it did not record.
		p.Before = func(request *pyjson.Object) {
			if request.String("path") == "/prompt" && srv.proc.queue.remaining() == 0 {
				srv.proc.queue.forgetAll()
			}
		}
	}
	return p.Play(t.Context())
}

// omission is something a replay does not compare.
type omission struct {
	version  string // "" is both
	scenario string
	step     string // label of the step, "socket NAME", "status frames"; "" is the whole scenario
	what     string // "all", "headers", "body", "frames", "code", "order", "count"
	reason   string
}

const (
	raceOrder = "prompts posted while another runs: where their status frame falls between the frames of the run is chance"
	raceCount = "prompts posted at the same moment: the count in a status frame depends on how far the worker was"
	machine   = "what the recording machine was made of"
	earlier   = "files left by scenarios recorded before this one"
)

// slow lists scenarios that depend on time or size. They run only with COMFYHUB_SLOW=1.
var slow = []string{"large-body", "stalled-client"}

// leftOut lists what the replay does not compare, and why. In all scenarios, ids,
// times, random letters, Python's traceback frames, printed tensors and the order
// of Python sets are normalised.
var leftOut = []omission{
	{"", "view", "If-None-Match", "headers", "Go's HTTP server sends no Content-Type with 304"},
	{"", "view", "If-Modified-Since", "headers", "Go's HTTP server sends no Content-Type with 304"},
	{"", "ws-connect", "socket clientid", "code", "the WebSocket library echoes a close code of 1001, aiohttp answers 1000"},
	{"", "system", "/system_stats", "body", machine},
	{"", "system", "/api/system_stats", "body", machine},
	{"", "new-routes", "/system_stats", "body", machine},
	{"", "system", "/internal/files/output", "body", earlier},
	{"", "system", "/internal/files/input", "body", earlier},
	{"", "new-routes", "/internal/files/output", "body", earlier},
	{"", "variant-cors-compress", "GET /object_info/KSampler: gzip accepted", "headers", "--enable-compress-response-body is not played"},
	{"", "stalled-client", "socket w", "frames", "the connection that stalls is not in the recording; TestStalledClientStallsAll plays it"},
	{"", "large-body", "upload of 101 MiB", "body", "how much was read of a body before it was refused"},
	{"", "large-body", "userdata of 101 MiB", "body", "how much was read of a body before it was refused"},
	{"", "routes", "GET //queue", "all", "404 since aiohttp 3.14, which is played; the recorded servers had an older one"},
	{"0.33.0", "variant-assets", "", "all", "--enable-assets is not played"},
	{"0.33.0", "new-routes", "/global_subgraphs", "body", "the listing was not kept by the recorder; here it is empty"},
	{"0.33.0", "new-routes", "/api/global_subgraphs", "body", "the listing was not kept by the recorder; here it is empty"},
	{"0.33.0", "new-routes", "one global subgraph (body may be large)", "body", "the listing was not kept by the recorder; here it is empty"},
	{"0.33.0", "validation-new", "history", "body", "the names of pictures made without a socket are not in the recording"},
	{"0.33.0", "jobs", "GET /api/jobs?sort_by=execution_duration&status=completed,failed,cancelled", "body", "sorted by how long the runs took"},
	{"0.33.0", "jobs", "GET /api/jobs?sort_by=execution_duration&sort_order=asc&status=completed,failed,cancelled", "body", "sorted by how long the runs took"},
	{"", "two-clients", "status frames", "order", raceOrder},
	{"", "server-stop-sigint", "status frames", "order", raceOrder},
	{"", "server-stop-sigkill", "status frames", "order", raceOrder},
	{"", "server-stop-sigterm", "status frames", "order", raceOrder},
	{"", "queue-burst", "status frames", "order", raceOrder},
	{"", "queue-burst", "status frames", "count", raceCount},
	{"", "queue", "status frames", "order", raceOrder},
	{"", "queue-shape", "status frames", "order", raceOrder},
	{"", "prompt-id-duplicate", "status frames", "order", raceOrder},
	{"", "order-front-number", "status frames", "order", raceOrder},
	{"", "order-front-number", "status frames", "count", raceCount},
	{"", "jobs", "status frames", "order", raceOrder},
	{"", "jobs-odd", "status frames", "order", raceOrder},
	{"", "jobs-odd", "status frames", "count", raceCount},
	{"", "jobs-cancel", "status frames", "order", raceOrder},
	{"", "jobs-cancel-many", "status frames", "order", raceOrder},
	{"", "interrupt", "status frames", "order", raceOrder},
	{"", "interrupt", "status frames", "count", raceCount},
}

func omitted(tr replay.Trace, step, what string) (omission, bool) {
	for _, o := range leftOut {
		if (o.version == "" || o.version == tr.Version) && o.scenario == tr.Name && o.step == step && (o.what == what || o.what == "all") {
			return o, true
		}
	}
	return omission{}, false
}

// TestReadme keeps the list in README.md equal to the table. COMFYHUB_UPDATE=1
// rewrites it.
func TestReadme(t *testing.T) {
	var b strings.Builder
	for _, o := range leftOut {
		version, step := o.version, o.step
		if version == "" {
			version = "both"
		}
		if step == "" {
			step = "(all)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", version, o.scenario, step, o.what, o.reason)
	}
	data, err := os.ReadFile("README.md")
	require.NoError(t, err)
	const mark = "| version | scenario | step | what | reason |\n|---|---|---|---|---|\n"
	head, table, ok := strings.Cut(string(data), mark)
	require.True(t, ok, "README.md has no table")
	if os.Getenv("COMFYHUB_UPDATE") != "" {
		require.NoError(t, os.WriteFile("README.md", []byte(head+mark+b.String()), 0o644))
		return
	}
	assert.Equal(t, b.String(), table)
}
