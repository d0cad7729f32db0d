package pull

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/apitest"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/tunnel"
	"github.com/comfyhub/comfyhub/internal/worker"
)

// bench is the room on a hub that has a machine, the attic, and no job for it.
type bench struct {
	*apitest.Server

	t        *testing.T
	settings config.Settings
	enlisted map[string]*worker.Worker
	stopped  context.Context //nolint:containedctx // a part of the hub that ends
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, settings: config.Settings{}.WithDefaults(), enlisted: map[string]*worker.Worker{}, stopped: t.Context()}
	b.Server = apitest.Serve(t, func(requests *api.Requests) []api.Optional {
		return Routes(func() Core { return Core{Settings: &b.settings, Tunnels: b, Workers: b} }, requests)
	})
	t.Cleanup(func() {
		for _, w := range b.enlisted {
			w.Close()
		}
	})
	return b
}

func (b *bench) Machine(_ context.Context, token string) (string, error) {
	if token != "good" {
		return "", tunnel.ErrToken
	}
	return "attic", nil
}

func (b *bench) Enlist(_, id, device string, info []byte) (*worker.Worker, error) {
	if err := fleet.CheckName(id); err != nil {
		return nil, err
	}
	if w := b.enlisted[id]; w != nil {
		return w, nil
	}
	if len(b.enlisted) == 2 {
		return nil, worker.ErrTooMany
	}
	w, err := worker.New(worker.Options{Dir: b.t.TempDir(), ObjectInfo: info, Device: device})
	b.enlisted[id] = w
	return w, err
}

func (b *bench) Named(machine, id string, _ []string, device string) (*worker.Worker, error) {
	return b.Enlist(machine, id, device, []byte("{}"))
}

func (b *bench) Find(_, id string) (*worker.Worker, error) {
	if w := b.enlisted[id]; w != nil {
		return w, nil
	}
	return nil, worker.ErrGone
}

func (b *bench) Holder(string, string) (*worker.Worker, error) { return nil, worker.ErrNotHeld }
func (b *bench) Wait(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	context.AfterFunc(b.stopped, cancel)
	return ctx, cancel
}

func TestRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/next-job?worker_id=one", "", 404},
		{"GET", "/next-job?worker_id=a/b&classes=X", "", 400},
		{"GET", "/next-job?classes=X&wait=soon", "", 400},
		{"GET", "/next-job?classes=X&service=a1111", "", 400},
		{"POST", "/hub/v1/workers/one", "{}", 400},
		{"POST", "/hub/v1/workers/one", "[]", 400},
		{"POST", "/complete-job/none", `{"result": 1}`, 409},
		{"POST", "/renew-job/none", ``, 409},
		{"POST", "/upload-output/none?filename=x.png", ``, 409},
		{"GET", "/hub/v1/job-input/none?name=x", ``, 409},
	} {
		status, answer := b.Ask(apitest.Client{}, c.method, c.path, c.body, "Authorization", "Bearer good")
		require.Equal(t, c.status, status, "%s: %s", c.path, answer)
		require.Regexp(t, `^\{"status": "error", "message": ".+"\}$`, answer)
	}
	for _, path := range []string{"/next-job?classes=X", "/hub/v1/next-job?classes=X"} {
		status, answer := b.Ask(apitest.Client{}, "GET", path, "", "Authorization", "Bearer wrong")
		require.Equal(t, http.StatusUnauthorized, status)
		require.Contains(t, answer, `"status": "error"`)
	}
	for id, want := range map[string]string{"one": "no_jobs", "one.0": "no_jobs"} {
		require.Contains(t, b.Gets(apitest.Client{}, "GET", "/next-job?classes=X&worker_id="+id, "", "Authorization", "Bearer good"), want)
	}
	require.JSONEq(t, `{"status": "no_jobs"}`, b.Gets(apitest.Client{}, "GET", "/next-job?worker_id=one&gpu_id=0", "", "Authorization", "Bearer good"))
	status, _ := b.Ask(apitest.Client{}, "GET", "/next-job?classes=X&worker_id=more", "", "Authorization", "Bearer good")
	require.Equal(t, http.StatusTooManyRequests, status, "a machine may have so many")
}

// A worker waits for a job as long as it likes, within bounds, and no longer than the hub works.
func TestWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var stop context.CancelFunc
		b.stopped, stop = context.WithCancel(t.Context())
		for wait, want := range map[string]time.Duration{"": 0, "&wait=5": 5 * time.Second, "&wait=1000": maxWait} {
			began := time.Now()
			require.JSONEq(t, `{"status": "no_jobs"}`, b.Gets(apitest.Client{}, "GET", "/next-job?classes=X"+wait, "", "Authorization", "Bearer good"))
			require.Equal(t, want, time.Since(began))
		}
		w, ended := b.Begin(t.Context(), apitest.Client{}, "GET", "/next-job?classes=X&wait=60", "", "Authorization", "Bearer good")
		synctest.Wait()
		stop()
		<-ended
		require.JSONEq(t, `{"status": "no_jobs"}`, w.Body.String())
	})
}
