package sim

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

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
		Skip: func(step, what string) bool {
			_, ok := omitted(tr, step, what)
			return ok
		},
		Kill: srv.Kill, Restart: srv.Restart,
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
