package sim

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim/replay"
)

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
