package callbacks

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// shelf is a queue of events that are all due.
type shelf struct {
	mu      sync.Mutex
	due     []queue.TakenCallback
	outcome map[string]string
}

func (s *shelf) TakeCallbacks(_ context.Context, bound int, skip []string) (out []queue.TakenCallback, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]bool{}
	s.due = slices.DeleteFunc(s.due, func(t queue.TakenCallback) bool {
		if len(out) == bound || slices.Contains(skip, t.Tenant) || seen[t.Tenant] {
			return false
		}
		seen[t.Tenant] = true
		out = append(out, t)
		return true
	})
	return out, nil
}

func (s *shelf) note(t queue.TakenCallback, what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcome[t.ID] = what
	return nil
}

func (s *shelf) Delivered(_ context.Context, t queue.TakenCallback) error {
	return s.note(t, "delivered")
}

func (s *shelf) RetryCallback(_ context.Context, t queue.TakenCallback, _ time.Duration, why string) error {
	return s.note(t, "retry: "+why)
}

func (s *shelf) PutOffCallback(_ context.Context, t queue.TakenCallback, _ time.Duration) error {
	return s.note(t, "later")
}

func (s *shelf) BuryCallback(_ context.Context, t queue.TakenCallback, why string) error {
	return s.note(t, "dead: "+why)
}

func (s *shelf) is(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outcome[id]
}

func event(tenant, id, link string) queue.TakenCallback {
	return queue.TakenCallback{CallbackEvent: queue.CallbackEvent{
		ID: id, Tenant: tenant, Prompt: "prompt", URL: link, Name: queue.EventFailed, At: 1_700_000_000_500, CreatedAt: 1_700_000_000_000, Reason: "10.0.0.1 died",
	}}
}

const older, newer = "an older secret of 16", "a newer secret of 16"

// sending runs a Sender that may call a server.
func sending(t *testing.T, server *httptest.Server, due ...queue.TakenCallback) *shelf {
	t.Helper()
	u := must.Get(url.Parse(server.URL))(t)
	hosts := must.Get(egress.ParseHosts([]string{u.Host}))(t)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	q := &shelf{due: due, outcome: map[string]string{}}
	s := New(Options{
		Queue: q, Settings: func() Settings { return Settings{hosts, []string{newer, older}} },
		Log: func() *slog.Logger { return slog.New(slog.DiscardHandler) }, Egress: func() egress.Options { return egress.Options{Roots: roots} }, Every: time.Millisecond,
		Shown: func(reason string) string { return strings.ReplaceAll(reason, "10.0.0.1", "gpu") },
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return q
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	return s
}

func TestSignedMessage(t *testing.T) {
	t.Parallel()
	type got struct {
		header http.Header
		body   []byte
	}
	came := make(chan got, 1)
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		came <- got{r.Header, body}
	})
	q := sending(t, server, event("ann", "an-id", server.URL+"/hook"))
	g := <-came
	require.Equal(t, "an-id", g.header.Get("webhook-id"))
	for _, secret := range []string{older, newer} {
		require.NoError(t, must.Get(standardwebhooks.NewWebhook(SecretOf(secret, "ann")))(t).Verify(g.body, g.header), "each of the secrets signs")
		foreign := must.Get(standardwebhooks.NewWebhook(SecretOf(secret, "bob")))(t)
		require.Error(t, foreign.Verify(g.body, g.header), "a tenant knows nobody else's secret")
	}
	require.JSONEq(t, `{"type": "job.failed", "timestamp": "2023-11-14T22:13:20.5Z", "data": {"id": "prompt", "created_at": 1700000000,
		"started_at": null, "finished_at": null, "progress": null, "error": "gpu died"}}`, string(g.body))
	require.Eventually(t, func() bool { return q.is("an-id") == "delivered" }, time.Minute, time.Millisecond)
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/moved":
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		case "/cut":
			panic(http.ErrAbortHandler)
		}
	})
	old := event("e", "old", server.URL+"/broken")
	old.Age = 24 * time.Hour
	q := sending(t, server,
		event("a", "ok", server.URL), event("b", "broken", server.URL+"/broken"), event("c", "gone", server.URL+"/gone"),
		event("d", "moved", server.URL+"/moved"), old, event("f", "cut", server.URL+"/cut"),
		event("g", "foreign", elsewhere.URL), event("h", "metadata", "https://169.254.169.254/"), event("i", "plain", "http://example.com/"),
	)
	for id, want := range map[string]string{
		"ok": "delivered", "broken": "retry: answered with status 500", "gone": "dead: answered with status 410",
		"moved": "retry: answered with status 307", "old": "dead: answered with status 500", "cut": "retry: the connection failed",
		"foreign":  "retry: the hub's operator does not allow this host",
		"metadata": "retry: the hub's operator does not allow this host",
		"plain":    "retry: only https:// URLs may be called",
	} {
		require.Eventually(t, func() bool { return q.is(id) != "" }, time.Minute, time.Millisecond)
		require.Equal(t, want, q.is(id), id)
	}
}

// A tenant whose receiver hangs has a few calls at a time; those of others go on.
func TestHangingReceiver(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	hanging := 0
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hang" {
			return
		}
		mu.Lock()
		hanging++
		mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body) // so that the server sees the client leave
		<-r.Context().Done()
	})
	var due []queue.TakenCallback
	for n := range 100 {
		due = append(due, event("eve", fmt.Sprint("eve", n), server.URL+"/hang"))
	}
	due = append(due, event("ann", "ann1", server.URL), event("ann", "ann2", server.URL))
	q := sending(t, server, due...)
	require.Eventually(t, func() bool { return q.is("ann1") == "delivered" && q.is("ann2") == "delivered" }, time.Minute, time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	require.LessOrEqual(t, hanging, maxOfTenant)
}

// A report of progress says how far the job is, and has less time to be answered.
func TestProgress(t *testing.T) {
	t.Parallel()
	e := event("ann", "an-id", "https://example.com/")
	require.Equal(t, sendTimeout, timeoutOf(e))
	e.Name, e.Progress, e.Reason = queue.EventProgress, 0.25, ""
	require.Equal(t, progressTimeout, timeoutOf(e))
	body := must.Get(bodyOf(e.CallbackEvent))(t)
	require.JSONEq(t, `{"type": "job.progress", "timestamp": "2023-11-14T22:13:20.5Z", "data": {"id": "prompt", "created_at": 1700000000,
		"started_at": null, "finished_at": null, "progress": 0.25, "error": null}}`, string(body))
}

func TestPauses(t *testing.T) {
	t.Parallel()
	for n := range 100 {
		p := pauseAfter(n)
		due := min(firstPause<<min(n, 16), mostPause)
		require.GreaterOrEqual(t, p, due/2)
		require.Less(t, p, due/2+due)
	}
}

// The reason is shown to the tenant: it says nothing of the hub's network.
func TestReasonsHideAddresses(t *testing.T) {
	t.Parallel()
	_, err := (&http.Client{}).Get("http://127.0.0.1:1/x")
	require.Error(t, err)
	require.NotContains(t, reasonOf(0, err), "127.0.0.1")
	require.True(t, json.Valid(must.Get(bodyOf(queue.CallbackEvent{Name: "done", Prompt: "\xff<script>"}))(t)))
}
