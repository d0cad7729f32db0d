package hub_test

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
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

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// receiver is a program that receives callbacks.
type receiver struct {
	*httptest.Server
	mu sync.Mutex
	// told are the types of the events, by job.
	told   map[string][]string
	broken bool
	hook   *standardwebhooks.Webhook
	t      testing.TB
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hook != nil && r.hook.Verify(body, request.Header) != nil {
		r.t.Error("the signature is wrong")
	}
	if r.broken {
		w.WriteHeader(http.StatusGone)
		return
	}
	var m struct {
		Type string
		Data struct{ ID string }
	}
	if json.Unmarshal(body, &m) != nil {
		r.t.Error("no JSON")
	}
	r.told[m.Data.ID] = append(r.told[m.Data.ID], m.Type)
}

func (r *receiver) of(id string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[id]
}

// calling is a hub whose jobs may call a receiver.
func calling(t *testing.T) (*bench, *receiver) {
	t.Helper()
	r := &receiver{told: map[string][]string{}, t: t}
	r.Server = httptest.NewTLSServer(r)
	t.Cleanup(r.Close)
	u := must(url.Parse(r.URL))(t)
	hosts := must(egress.ParseHosts([]string{u.Host}))(t)
	b := shared(t, config.TenantLimits{}, serving(sim.Config{}))
	roots := x509.NewCertPool()
	roots.AddCert(r.Certificate())
	b.hub.Callbacks.Options.Roots = roots // nothing is sent before the hosts are set
	b.settings.CallbackHosts, b.settings.CallbackSecrets = hosts, []string{"a secret of callbacks"}
	require.NoError(t, b.hub.Start(t.Context(), b.settings))
	return b, r
}

func (b *bench) called(tenant, id, extra string) (status int, answer string) {
	b.t.Helper()
	return b.as(tenant, "POST", "/prompt", fmt.Sprintf(`{"prompt": {"1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 7}},
		"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}}}, "prompt_id": %q, "extra_data": {"note": "kept", "comfyhub": {"priority": 3, %s}}}`, id, extra))
}

func TestCallbacks(t *testing.T) {
	t.Parallel()
	b, r := calling(t)
	_, answer := b.as("ann", "GET", "/hub/callbacks/secret", "")
	secret := decoded[struct{ Secret string }](t, answer)
	var err error
	r.mu.Lock()
	r.hook, err = standardwebhooks.NewWebhook(secret.Secret)
	r.mu.Unlock()
	require.NoError(t, err)
	_, foreign := b.as("bob", "GET", "/hub/callbacks/secret", "")
	require.NotEqual(t, answer, foreign)

	status, answer := b.called("ann", "all", fmt.Sprintf(`"callback_url": %q, "callback_events": ["queued", "started", "done"]`, r.URL+"/?token=hidden"))
	require.Equal(t, http.StatusOK, status, answer)
	status, answer = b.called("ann", "ends", fmt.Sprintf(`"callback_url": %q`, r.URL))
	require.Equal(t, http.StatusOK, status, answer)
	status, answer = b.as("ann", "POST", "/submit", fmt.Sprintf(`{"workflow": {"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
		"1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 8}}}, "callback_url": %q}`, r.URL))
	require.Equal(t, http.StatusOK, status, answer)
	plain := decoded[struct{ ID string }](t, answer)
	for id, want := range map[string][]string{"all": {"job.queued", "job.started", "job.done"}, "ends": {"job.done"}, plain.ID: {"job.done"}} {
		eventually(t, func() bool { return len(r.of(id)) == len(want) }, time.Minute, time.Millisecond, id)
		require.Equal(t, want, r.of(id))
	}
	_, history := b.as("ann", "GET", "/history/all", "")
	require.Contains(t, history, "kept")
	require.Contains(t, history, `"priority": 3`)
	require.NotContains(t, history, "hidden", "an instance and the history are told no URL")
}

// A callback that asks for progress is told how far along a job is.
func TestProgressCallsBack(t *testing.T) {
	t.Parallel()
	b, r := calling(t)
	answer := b.acts("ann", "POST", "/submit", fmt.Sprintf(`{"workflow": %s, "callback_url": %q, "callback_events": ["progress", "cancelled"]}`, endless(1), r.URL))
	id := plainOf(t, []byte(answer)).ID
	eventually(t, func() bool { return len(r.of(id)) > 0 }, time.Minute, time.Millisecond)
	b.acts("ann", "POST", "/cancel/"+id, "")
	eventually(t, func() bool { return slices.Contains(r.of(id), "job.cancelled") }, time.Minute, time.Millisecond)
	require.Equal(t, []string{"job.progress", "job.cancelled"}, slices.Compact(slices.Clone(r.of(id))), "the progress is told every few seconds")
}

func TestRefusedCallbacks(t *testing.T) {
	t.Parallel()
	b, r := calling(t)
	for extra, why := range map[string]string{
		`"callback_url": "https://elsewhere.example/"`:                           "does not allow this host",
		`"callback_url": "http://127.0.0.1/"`:                                    "only https",
		`"callback_url": "https://169.254.169.254/"`:                             "does not allow this host",
		`"callback_url": "https://2852039166/"`:                                  "no valid host",
		`"callback_url": 5`:                                                      "must be a text",
		`"callback_url": "https://a b/"`:                                         "must be a URL",
		fmt.Sprintf(`"callback_url": "%s/%s"`, r.URL, strings.Repeat("x", 2048)): "2048 bytes",
		`"callback_events": ["done"]`:                                            "there is no callback_url",
		fmt.Sprintf(`"callback_url": %q, "callback_events": []`, r.URL):          "one or more of",
		fmt.Sprintf(`"callback_url": %q, "callback_events": ["dnoe"]`, r.URL):    "one or more of",
	} {
		answer := answered(b.called("ann", "refused", extra))(t, http.StatusBadRequest)
		require.Contains(t, answer, `"type": "invalid_callback"`)
		require.Contains(t, answer, why)
		require.Equal(t, http.StatusNotFound, statusOf(b.as("ann", "GET", "/hub/jobs/refused", "")), "nothing is queued")
	}
	settings := b.settings
	settings.CallbackHosts, _ = egress.ParseHosts([]string{"*"})
	require.NoError(t, b.hub.Start(t.Context(), settings))
	answer := answered(b.called("ann", "refused", `"callback_url": "https://169.254.169.254/"`))(t, http.StatusBadRequest)
	require.Contains(t, answer, "an address that the hub may not call")
	require.NoError(t, b.hub.Start(t.Context(), b.settings))
	answer = answered(b.as("ann", "POST", "/submit", `{"workflow": {}, "callback_url": "https://elsewhere.example/"}`))(t, http.StatusBadRequest)
	require.Contains(t, answer, "does not allow this host")
	b.settings.CallbackSecrets = nil
	require.NoError(t, b.hub.Start(t.Context(), b.settings))
	answer = answered(b.called("ann", "refused", fmt.Sprintf(`"callback_url": %q`, r.URL)))(t, http.StatusBadRequest)
	require.Contains(t, answer, "this hub has no callbacks")
	require.Equal(t, http.StatusNotFound, statusOf(b.as("ann", "GET", "/hub/callbacks/secret", "")))
}

// Only its tenant can see and replay an event that could not be delivered.
func TestReplayedCallback(t *testing.T) {
	t.Parallel()
	b, r := calling(t)
	r.mu.Lock()
	r.broken = true
	r.mu.Unlock()
	answered(b.called("ann", "lost", fmt.Sprintf(`"callback_url": %q`, r.URL)))(t, http.StatusOK)
	var dead []struct{ ID, Type, Job, Error string }
	eventually(t, func() bool {
		_, answer := b.as("ann", "GET", "/hub/callbacks?state=dead", "")
		return json.Unmarshal([]byte(answer), &dead) == nil && len(dead) == 1
	}, time.Minute, time.Millisecond)
	require.Equal(t, []string{"job.done", "lost", "answered with status 410"}, []string{dead[0].Type, dead[0].Job, dead[0].Error})
	_, answer := b.as("bob", "GET", "/hub/callbacks?state=dead", "")
	require.JSONEq(t, "[]", answer)
	require.Equal(t, http.StatusNotFound, statusOf(b.as("bob", "POST", "/hub/callbacks/"+dead[0].ID+"/replay", "")))
	r.mu.Lock()
	r.broken = false
	r.mu.Unlock()
	b.acts("ann", "POST", "/hub/callbacks/"+dead[0].ID+"/replay", "")
	eventually(t, func() bool { return len(r.of("lost")) == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, http.StatusBadRequest, statusOf(b.as("ann", "GET", "/hub/callbacks?state=odd", "")))
}

// plainJob is an answer of the plain job API.
type plainJob struct {
	ID          string
	Status      string
	CreatedAt   float64  `json:"created_at"`
	StartedAt   *float64 `json:"started_at"`
	CompletedAt *float64 `json:"completed_at"`
	Error       *string
	Detail      string
	NodeErrors  map[string]any `json:"node_errors"`
	Result      *struct {
		Files []struct{ Node, Filename, Type, URL string }
	}
}

func plainOf(t testing.TB, body []byte) plainJob {
	t.Helper()
	return decoded[plainJob](t, body)
}

// order submits a job by the plain API.
func (b *bench) order(graph, more string) plainJob {
	b.t.Helper()
	return plainOf(b.t, b.posts("/submit", `{"workflow": `+graph+more+`}`))
}

func (b *bench) plain(path string) plainJob {
	b.t.Helper()
	return plainOf(b.t, b.gets(path))
}

// A program submits, polls and fetches the result, and ComfyUI's API has the same job. One key means
// one job, however many requests come with it. What the web UI has saved is converted. Limits are
// those of POST /prompt.
func TestPlainJob(t *testing.T) {
	inBench(t, benchOf(1, func(b *bench) { b.settings.TenantLimits.Waiting = 1 }), func(t *testing.T, b *bench) {
		b.tenant = "ann"
		var wait sync.WaitGroup
		ids := make([]string, 8)
		for n := range ids {
			wait.Go(func() {
				ids[n] = b.order(picture(0x102030), `, "service": "comfyui", "priority": 0, "idempotency_key": "k"`).ID
			})
		}
		wait.Wait()
		require.Len(t, slices.Compact(ids), 1)
		ended := b.plain("/hub/v1/wait/" + ids[0] + "?timeout=60")
		require.Equal(t, "completed", ended.Status)
		require.Equal(t, ended, b.plain("/status/"+ids[0]))
		require.InDelta(t, float64(time.Now().Unix()), ended.CreatedAt, 60)
		require.GreaterOrEqual(t, *ended.CompletedAt, *ended.StartedAt)
		require.Len(t, ended.Result.Files, 1)
		file := ended.Result.Files[0]
		require.Equal(t, "2", file.Node)
		require.True(t, strings.HasPrefix(file.URL, b.web.URL+"/view?"), file.URL)
		require.Contains(t, string(b.gets(strings.TrimPrefix(file.URL, b.web.URL))[:8]), "PNG")
		entry, ok := b.history(ids[0])
		require.True(t, ok)
		require.Equal(t, file.Filename, entry.Outputs["2"].Images[0].Filename)

		const saved = `{"nodes": [{"id": 2, "type": "SaveImage", "order": 1, "mode": 0, "inputs": [{"name": "images", "type": "IMAGE", "link": 1}], "widgets_values": ["saved"]},
			{"id": 1, "type": "EmptyImage", "order": 0, "mode": 0, "outputs": [{"name": "IMAGE", "type": "IMAGE", "links": [1]}], "widgets_values": [64, 32, 1, 255]},
			{"id": 3, "type": "%s", "order": 2, "mode": 0, "widgets_values": ["x"]}], "links": [[1, 1, 0, 2, 0, "IMAGE"]], "version": 0.4}`
		ended = b.plain("/wait/" + b.order(fmt.Sprintf(saved, "Note"), "").ID + "?timeout=60")
		require.Contains(t, ended.Result.Files[0].Filename, "saved")
		for graph, node := range map[string]string{fmt.Sprintf(saved, "Nonsense"): "3", strings.Replace(picture(1), "64", `"x"`, 1): "1"} {
			answer := answered(b.post("/submit", `{"workflow": `+graph+`}`))(t, http.StatusUnprocessableEntity)
			require.Contains(t, plainOf(t, answer).NodeErrors, node)
		}
		failed := b.plain("/wait/" + b.order(work(1, 7, "error"), "").ID + "?timeout=60")
		require.Equal(t, "failed", failed.Status)
		require.NotEmpty(t, *failed.Error)

		b.order(endless(1), "")
		eventually(t, func() bool { return started(b) == 4 }, time.Minute, 5*time.Millisecond)
		b.order(picture(1), "")
		resp, err := http.Post(b.web.URL+"/submit", "application/json", strings.NewReader(`{"workflow": `+picture(2)+`}`))
		require.NoError(t, err)
		body := answered(read(t, resp))(t, http.StatusTooManyRequests)
		require.Equal(t, "10", resp.Header.Get("Retry-After"))
		require.Contains(t, plainOf(t, body).Detail, "tenant_limits waiting")
	})
}
