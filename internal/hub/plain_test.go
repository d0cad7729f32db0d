package hub

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// plainJob is an answer of the plain job API.
type plainJob struct {
	ID          string
	Status      string
	Position    *int
	CreatedAt   float64  `json:"created_at"`
	StartedAt   *float64 `json:"started_at"`
	CompletedAt *float64 `json:"completed_at"`
	Progress    float64
	Cancelled   bool
	Error       *string
	Detail      string
	NodeErrors  map[string]any `json:"node_errors"`
	Result      *struct {
		Files []struct{ Node, Filename, Type, URL string }
	}
}

func plainOf(t testing.TB, body []byte) plainJob {
	t.Helper()
	j := decoded[plainJob](t, body)
	return j
}

// order submits a job by the plain API.
func (b *bench) order(graph, more string) plainJob {
	b.t.Helper()
	body := b.posts("/submit", `{"workflow": `+graph+more+`}`)
	return plainOf(b.t, body)
}

func (b *bench) plain(path string) plainJob {
	b.t.Helper()
	body := b.gets(path)
	return plainOf(b.t, body)
}

// A program submits, polls and fetches the result, and ComfyUI's API has the same job.
func TestPlainJob(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		accepted := b.order(picture(0x102030), `, "service": "comfyui", "priority": 0`)
		require.Equal(t, "queued", accepted.Status)
		require.InDelta(t, float64(time.Now().Unix()), accepted.CreatedAt, 60)
		ended := b.plain("/hub/v1/wait/" + accepted.ID + "?timeout=60")
		require.Equal(t, "completed", ended.Status)
		require.Equal(t, ended, b.plain("/status/"+accepted.ID))
		require.Nil(t, ended.Error)
		require.Nil(t, ended.Position)
		require.GreaterOrEqual(t, *ended.CompletedAt, *ended.StartedAt)
		require.InDelta(t, 1, ended.Progress, 0)
		require.Len(t, ended.Result.Files, 1)
		file := ended.Result.Files[0]
		require.Equal(t, "2", file.Node)
		require.True(t, strings.HasPrefix(file.URL, b.web.URL+"/view?"), file.URL)
		resp, err := http.Get(file.URL)
		require.NoError(t, err)
		image := answered(read(t, resp))(t, http.StatusOK)
		require.Contains(t, string(image[:8]), "PNG")
		entry, ok := b.history(accepted.ID)
		require.True(t, ok)
		require.Equal(t, file.Filename, entry.Outputs["2"].Images[0].Filename)
		_, stats := b.get("/stats")
		require.JSONEq(t, `{"queued": 0, "priority_queue": 0, "standard_queue": 0, "processing": 0, "completed": 1, "failed": 0, "cancelled": 0}`, string(stats))
	})
}

// Waiting, running, failed and cancelled jobs are reported as such.
func TestPlainStatuses(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		running := b.order(endless(1), "")
		eventually(t, func() bool { return b.plain("/status/"+running.ID).Status == "processing" }, time.Minute, 5*time.Millisecond)
		waiting, urgent := b.order(picture(1), ""), b.order(picture(2), `, "priority": 5`)
		require.Equal(t, 0, *urgent.Position)
		require.Equal(t, 1, *b.plain("/status/" + waiting.ID).Position)
		_, stats := b.get("/hub/v1/stats")
		require.JSONEq(t, `{"queued": 2, "priority_queue": 1, "standard_queue": 1, "processing": 1, "completed": 0, "failed": 0, "cancelled": 0}`, string(stats))
		require.Equal(t, "queued", b.plain("/wait/"+waiting.ID+"?timeout=0.05").Status, "the timeout is over")

		heard := make(chan plainJob, 1)
		go func() { heard <- b.plain("/wait/" + waiting.ID + "?timeout=60") }()
		body := b.posts("/cancel/"+waiting.ID, "")
		require.JSONEq(t, `{"id": "`+waiting.ID+`", "cancelled": true, "status": "cancelled"}`, string(body))
		require.Equal(t, "cancelled", (<-heard).Status)

		_, body = b.post("/hub/v1/cancel/"+running.ID, "")
		require.True(t, plainOf(t, body).Cancelled)
		require.Equal(t, "cancelled", b.plain("/wait/"+running.ID+"?timeout=60").Status)
		require.Equal(t, "completed", b.plain("/wait/"+urgent.ID+"?timeout=60").Status)
		_, body = b.post("/cancel/"+urgent.ID, "")
		require.JSONEq(t, `{"id": "`+urgent.ID+`", "cancelled": false, "status": "completed"}`, string(body))

		failed := b.plain("/wait/" + b.order(work(1, 7, "error"), "").ID + "?timeout=60")
		require.Equal(t, "failed", failed.Status)
		require.NotEmpty(t, *failed.Error)
	})
}

// events reads the stream of a job to its end.
func (b *bench) events(id string) (names []string, last plainJob) {
	b.t.Helper()
	resp, err := http.Get(b.web.URL + "/events/" + id)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	require.Equal(b.t, "text/event-stream", resp.Header.Get("Content-Type"))
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			names = append(names, name)
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			last = plainOf(b.t, []byte(data))
		}
	}
	require.NoError(b.t, lines.Err())
	return names, last
}

// A stream tells how a job progresses, and ends with it.
func TestPlainEvents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, serving(sim.Config{TimeScale: 0.3}))
		before := b.order(endless(1), "")
		eventually(t, func() bool { return started(b) == 1 }, time.Minute, 5*time.Millisecond)
		id := b.order(work(12, 3, "none"), "").ID
		var names []string
		var last plainJob
		var wait sync.WaitGroup
		wait.Go(func() { names, last = b.events(id) })
		eventually(t, func() bool { return len(b.hub.watches.Keys()) > 0 }, time.Minute, time.Millisecond)
		_, _ = b.post("/cancel/"+before.ID, "")
		wait.Wait()
		require.Equal(t, "queued", names[0])
		require.Contains(t, names, "started")
		require.Contains(t, names, "progress")
		require.Equal(t, "done", names[len(names)-1])
		require.Equal(t, "completed", last.Status)
		require.NotEmpty(t, last.Result.Files)
		names, _ = b.events(id)
		require.Equal(t, []string{"done"}, names)
	})
}

// Whatever is wrong with a job is reported, each time with the right status.
func TestPlainRefusals(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		for body, want := range map[string]struct {
			status int
			detail string
		}{
			``:                                    {400, "not JSON"},
			`[`:                                   {400, "not JSON"},
			`[]`:                                  {400, "must be a JSON object"},
			`{}`:                                  {400, "workflow: is missing"},
			`{"workflow": []}`:                    {400, "workflow: must be an object"},
			`{"workflow": {}}`:                    {422, "no outputs"},
			`{"workflow": {"1": 5}}`:              {422, ""},
			`{"workflow": {}, "service": "x"}`:    {400, "service"},
			`{"service": "a1111"}`:                {422, "No A1111 instances"},
			`{"workflow": {}, "priority": 101}`:   {400, "priority"},
			`{"workflow": {}, "priority": 1.5}`:   {400, "priority"},
			`{"workflow": {}, "priority": "1"}`:   {400, "priority"},
			`{"workflow": {}, "band": "first"}`:   {400, "band"},
			`{"workflow": {}, "extra_data": 1}`:   {400, "extra_data"},
			`{"workflow": {}, "client_id": 1}`:    {400, "client_id"},
			`{"workflow": {}, "priorty": 1}`:      {400, "priorty"},
			`{"workflow": {}, "callback_url": 1}`: {400, "callback_url"},
			`{"workflow": {}, "callback_url": "https://example.com/"}`:          {400, "no callbacks"},
			`{"workflow": {}, "idempotency_key": ""}`:                           {400, "idempotency_key"},
			`{"workflow": {}, "prompt_id": "x"}`:                                {400, "prompt_id"},
			`{"workflow": {"1": {"class_type": "Nonsense", "inputs": {}}}}`:     {422, "Nonsense"},
			`{"workflow": ` + strings.Repeat(`[`, 3000) + `}`:                   {400, ""},
			`{"workflow": ` + strings.Replace(picture(1), "64", `"x"`, 1) + `}`: {422, "failed validation"},
		} {
			status, answer := b.post("/submit", body)
			require.Equal(t, want.status, status, "%.60s: %s", body, answer)
			require.Contains(t, plainOf(t, answer).Detail, want.detail, "%.60s: %s", body, answer)
		}
		_, answer := b.post("/submit", `{"workflow": `+strings.Replace(picture(1), "64", `"x"`, 1)+`}`)
		require.Contains(t, plainOf(t, answer).NodeErrors, "1", string(answer))
		for _, path := range []string{"/status/none", "/wait/none", "/events/none", "/hub/v1/status/none"} {
			status, answer := b.get(path)
			require.Equal(t, http.StatusNotFound, status)
			require.JSONEq(t, `{"detail": "Job not found"}`, string(answer))
		}
		status, answer := b.post("/cancel/none", "")
		require.Equal(t, http.StatusNotFound, status)
		require.JSONEq(t, `{"detail": "Job not found"}`, string(answer))
		done := b.order(picture(1), "")
		for _, timeout := range []string{"", "x", "-1", "NaN"} {
			answered(b.get("/wait/"+done.ID+"?timeout="+timeout))(t, http.StatusBadRequest)
		}
	})
}

// What the web UI has saved is converted, and what cannot be converted is reported by node.
func TestPlainSavedWorkflow(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		const saved = `{"nodes": [{"id": 2, "type": "SaveImage", "order": 1, "mode": 0, "inputs": [{"name": "images", "type": "IMAGE", "link": 1}], "widgets_values": ["saved"]},
			{"id": 1, "type": "EmptyImage", "order": 0, "mode": 0, "outputs": [{"name": "IMAGE", "type": "IMAGE", "links": [1]}], "widgets_values": [64, 32, 1, 255]},
			{"id": 3, "type": "%s", "order": 2, "mode": 0, "widgets_values": ["x"]}], "links": [[1, 1, 0, 2, 0, "IMAGE"]], "version": 0.4}`
		accepted := b.order(fmt.Sprintf(saved, "Note"), `, "priority": 3`)
		ended := b.plain("/wait/" + accepted.ID + "?timeout=60")
		require.Equal(t, "completed", ended.Status)
		require.Contains(t, ended.Result.Files[0].Filename, "saved")
		answer := answered(b.post("/submit", `{"workflow": `+fmt.Sprintf(saved, "Nonsense")+`}`))(t, http.StatusUnprocessableEntity)
		require.Contains(t, plainOf(t, answer).NodeErrors, "3")
		answer = answered(b.post("/submit", `{"workflow": {"nodes": [{"id": 1, "type": "s"}], "definitions": {"subgraphs": [{"id": "s", "nodes": [{"id": 1, "type": "s"}]}]}}}`))(t, http.StatusBadRequest)
		require.Contains(t, plainOf(t, answer).Detail, "too deeply")
	})
}

// One key means one job of its tenant, whatever else is sent with it.
func TestPlainIdempotency(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		b.tenant = "ann"
		first := b.order(picture(1), `, "idempotency_key": "k"`)
		require.Equal(t, first.ID, b.order(picture(1), `, "idempotency_key": "k"`).ID)
		require.Equal(t, "completed", b.plain("/wait/"+first.ID+"?timeout=60").Status)
		again := b.order(picture(2), `, "idempotency_key": "k"`)
		require.Equal(t, first.ID, again.ID)
		require.Equal(t, "completed", again.Status)
		require.NotEqual(t, first.ID, b.order(picture(1), `, "idempotency_key": "l"`).ID)
		b.tenant = "bob"
		require.NotEqual(t, first.ID, b.order(picture(1), `, "idempotency_key": "k"`).ID)
		require.Equal(t, http.StatusNotFound, statusOf(b.get("/status/"+first.ID)), "another tenant's")
		var wait sync.WaitGroup
		ids := make([]string, 8)
		for n := range ids {
			wait.Go(func() { ids[n] = b.order(picture(3), `, "idempotency_key": "m"`).ID })
		}
		wait.Wait()
		for _, id := range ids {
			require.Equal(t, ids[0], id)
		}
		eventually(t, func() bool {
			_, stats := b.get("/stats")
			return strings.Contains(string(stats), `"completed": 2,`)
		}, time.Minute, 5*time.Millisecond)
	})
}

// Limits are those of POST /prompt, and a request that is held open counts as a socket.
func TestPlainLimits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) {
			b.settings.TenantLimits = config.TenantLimits{Waiting: 1, Sockets: 2}
			b.settings.MaxBody = 64 << 10
		})
		b.tenant = "ann"
		running := b.order(endless(1), "")
		eventually(t, func() bool { return started(b) == 1 }, time.Minute, 5*time.Millisecond)
		b.order(picture(1), "")
		resp, err := http.Post(b.web.URL+"/submit", "application/json", strings.NewReader(`{"workflow": `+picture(2)+`}`))
		require.NoError(t, err)
		status, body := read(t, resp)
		require.Equal(t, http.StatusTooManyRequests, status, string(body))
		require.Equal(t, "10", resp.Header.Get("Retry-After"))
		require.Contains(t, plainOf(t, body).Detail, "tenant_limits waiting")
		body = answered(b.post("/submit", `{"workflow": `+picture(2)+`, "client_id": "`+strings.Repeat("x", 70<<10)+`"}`))(t, http.StatusRequestEntityTooLarge)
		require.NotEmpty(t, plainOf(t, body).Detail)

		var streams []io.Closer
		for range 2 {
			resp, err := http.Get(b.web.URL + "/events/" + running.ID)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			streams = append(streams, resp.Body)
		}
		for _, path := range []string{"/events/", "/wait/"} {
			body = answered(b.get(path+running.ID))(t, http.StatusTooManyRequests)
			require.Contains(t, plainOf(t, body).Detail, "tenant_limits sockets")
		}
		for _, s := range streams {
			require.NoError(t, s.Close())
		}
		eventually(t, func() bool { // the hub notices that they are gone
			status, _ := b.get("/wait/" + running.ID + "?timeout=0.01")
			return status == http.StatusOK
		}, time.Minute, 10*time.Millisecond)
	})
}

// The operator may have the routes below /hub only, or not at all.
func TestPlainAPISwitch(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		for _, c := range []struct {
			at       config.PlainAPI
			root, v1 int
		}{{config.PlainAPIRoot, 200, 200}, {config.PlainAPIV1, 404, 200}, {config.PlainAPIOff, 404, 404}} {
			b.settings.PlainAPI = c.at
			require.NoError(t, b.hub.Start(t.Context(), b.settings))
			require.Equal(t, c.root, statusOf(b.get("/stats")), c.at)
			require.Equal(t, c.v1, statusOf(b.get("/hub/v1/stats")), c.at)
			b.gets("/system_stats")
		}
		b.settings.PlainAPI = config.PlainAPIRoot
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		// A custom node may have a route of the same name: the hub has just one method of it.
		require.Equal(t, http.StatusNotFound, statusOf(b.get("/submit")), "the instance's answer")
		require.Equal(t, http.StatusMethodNotAllowed, statusOf(b.get("/hub/v1/submit")))
	})
}
