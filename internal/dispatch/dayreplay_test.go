package dispatch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// recording is what came through real processes: the benchmark `model` writes it.
type recording struct {
	Servers int
	// Lags are for one simulation each: how long it takes until a prompt begins that finds
	// an idle server, and until one does that had to wait for it.
	Lags    []struct{ Idle, Freed time.Duration }
	Prompts []struct {
		// At is when the prompt was posted, from the beginning on.
		At time.Duration
		// Took is from the beginning of its run to the end.
		Took   time.Duration
		Caller string
		Graph  json.RawMessage
	}
}

// waits simulates what was recorded and returns how long each prompt waited, in the order in
// which they began, with each of the lags.
func (r recording) waits(t *testing.T) (waits [][]time.Duration) {
	t.Helper()
	needs := catalog.Requirements{Classes: []string{"Picture"}}
	var list []arrival
	for _, p := range r.Prompts {
		graph := must(pyjson.Parse(p.Graph))
		k := &dayKind{name: "Picture", class: needs.Signature(), requires: needs.Encode(), graph: graph}
		list = append(list, arrival{at: p.At, tenant: "t0", caller: p.Caller, kind: k, takes: p.Took})
	}
	for _, lag := range r.Lags {
		s := daySpec{servers: r.Servers, models: 1, lag: lag.Idle, lagNext: lag.Freed}
		waits = append(waits, s.simulateThese(t, list, false, daySettings).waits["all"])
	}
	return waits
}

// Short ones go first, once it is known that they are short, and each run begins after the lag.
func TestDayReplays(t *testing.T) {
	t.Parallel()
	const text = `{"servers": 1, "lags": [{"idle": 1000000000, "freed": 2000000000}, {}], "prompts": [
		{"at": 0, "took": 4000000000, "caller": "a", "graph": {"1": {"class_type": "Short", "inputs": {}}}},
		{"at": 10000000000, "took": 60000000000, "caller": "b", "graph": {"1": {"class_type": "Long", "inputs": {}}}},
		{"at": 100000000000, "took": 60000000000, "caller": "c", "graph": {"1": {"class_type": "Long", "inputs": {}}}},
		{"at": 101000000000, "took": 60000000000, "caller": "d", "graph": {"1": {"class_type": "Long", "inputs": {}}}},
		{"at": 102000000000, "took": 4000000000, "caller": "e", "graph": {"1": {"class_type": "Short", "inputs": {}}}}]}`
	var r recording
	require.NoError(t, json.Unmarshal([]byte(text), &r))
	require.Equal(t, [][]time.Duration{seconds(1, 1, 1, 61, 68), seconds(0, 0, 0, 58, 63)}, r.waits(t))
}

// What the benchmark `model` has recorded; else there is nothing to do.
func TestDayRecorded(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("COMFYHUB_DAY_RECORDED")
	if folder == "" {
		t.Skip("COMFYHUB_DAY_RECORDED names no folder with a recording")
	}
	text := must(os.ReadFile(filepath.Join(folder, "recorded.json")))
	var r recording
	require.NoError(t, json.Unmarshal(text, &r))
	text = must(json.Marshal(r.waits(t)))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "waits.json"), text, 0o600))
}
