package ops

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// newServer serves this room alone, on a hub without instances.
func newServer(t *testing.T, start bool) *api.Server {
	t.Helper()
	h := hub.New(config.Identity{Redis: "embedded", Data: t.TempDir(), GossipBind: "127.0.0.1:0"})
	t.Cleanup(func() { require.NoError(t, h.Close(context.Background())) })
	table := &api.Router{}
	requests := api.NewRequests(h, func() *slog.Logger { return h.Settings().Logger }, table)
	if start {
		require.NoError(t, h.Start(t.Context(), config.Settings{Logger: slog.New(slog.DiscardHandler)}))
	}
	return api.NewServer(h, requests, api.Rooms{Own: Routes(h, requests), ComfyUI: table})
}

func ask(t *testing.T, s *api.Server, method, path, body string) (status int, answer string, header http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	s.Serve(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)), api.Visitor{IP: "127.0.0.1"})
	return w.Code, w.Body.String(), w.Header()
}

func TestAnswersOfAnEmptyHub(t *testing.T) {
	t.Parallel()
	s := newServer(t, true)
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "/hub/instances", "", 200, `[]`},
		{"GET", "/hub/jobs", "", 200, `[]`},
		{"GET", "/hub/jobs/none", "", 404, `Job not found`},
		{"GET", "/hub/stats", "", 200, `"queued": 0, "running": 0, "sockets": 0, "instances": {`},
		{"GET", "/hub/scale", "", 403, `Only operators may do this`},
		{"POST", "/hub/jobs/none/cancel", "", 200, `{"cancelled": false}`},
		{"POST", "/hub/explain", `{"prompt_id": "none"}`, 404, `Job not found`},
		{"PATCH", "/hub/jobs/none", `{"paused": true}`, 404, `Job not found`},
		{"PATCH", "/hub/jobs/none", `{"pause": true}`, 400, `want JSON with one or more of`},
		{"PATCH", "/hub/jobs/none", strings.Repeat(" ", int(api.SmallBody.Limit)+1), 413, ``},
		{"POST", "/hub/explain", `{}`, 400, `prompt_id is needed`},
		{"POST", "/hub/explain", `[`, 400, `prompt_id is needed`},
		{"POST", "/hub/explain", `{"prompt_id": 5}`, 400, `prompt_id is needed`},
		{"POST", "/hub/explain", strings.Repeat(" ", int(api.SmallBody.Limit)+1), 413, ``},
		{"POST", "/hub/files", `{"filename": "none.png"}`, 404, `File not found`},
		{"POST", "/hub/files", `{"filename": "../none.png"}`, 404, `File not found`},
		{"POST", "/hub/files", `{}`, 400, `filename`},
		{"POST", "/hub/files", `{"filename": "a.png", "expires_in": 0}`, 400, `1 to 604800`},
		{"POST", "/hub/files", `{"filename": "a.png", "expires_in": 604801}`, 400, `1 to 604800`},
		{"POST", "/hub/files", `{"filename": "a.png", "expires_in": "soon"}`, 400, `filename`},
		{"POST", "/hub/files", strings.Repeat(" ", int(api.SmallBody.Limit)+1), 413, ``},
		{"GET", "/hub/files/a.png", "", 403, `This link is not valid`},
		{"GET", fmt.Sprintf("/hub/files/a.png?exp=%d&sig=forged", time.Now().Add(time.Hour).Unix()), "", 403, `This link is not valid`},
		{"GET", fmt.Sprintf("/hub/files/a.png?exp=%d&sig=forged", time.Now().Add(-time.Hour).Unix()), "", 403, `This link is not valid`},
		{"GET", "/api/hub/jobs", "", 404, ``}, // below /hub only, never below /api
	} {
		status, answer, _ := ask(t, s, c.method, c.path, c.body)
		require.Equal(t, c.status, status, "%s %s %.40s: %s", c.method, c.path, c.body, answer)
		require.Contains(t, answer, c.answer, "%s %s", c.method, c.path)
	}
}

// A hub that has not started answers "not now", and nothing panics.
func TestBeforeTheStart(t *testing.T) {
	t.Parallel()
	s := newServer(t, false)
	for _, path := range []string{"/hub/instances", "/hub/jobs", "/hub/jobs/x", "/hub/jobs/x/whole", "/hub/search", "/hub/stats", "/hub/files/a.png"} {
		status, answer, _ := ask(t, s, "GET", path, "")
		require.Equal(t, http.StatusServiceUnavailable, status, "%s: %s", path, answer)
	}
}

// The shapes are public: their fields, order and kinds.
func TestShapes(t *testing.T) {
	t.Parallel()
	waiting := view.JobView{Job: job.Job{ID: "a", Requester: job.Requester{Tenant: "t"}, State: job.Queued, CreatedAt: 1500}, Position: 2, ETA: -1}
	require.Equal(t, `{"id": "a", "status": "queued", "position": 2, "eta": null, "instance": null, "attempts": 0, "tenant": "t", "priority": 0, `+
		`"progress": 0.0, "created_at": 1.5, "started_at": null, "finished_at": null, "error": "", "lost": []}`, string(pyjson.Marshal(jobValue(waiting))))
	running := view.JobView{Position: -1, ETA: 12345 * time.Millisecond, Job: job.Job{
		ID: "b", State: job.Leased, Attempts: 2, Priority: -1, Progress: 0.25, CreatedAt: 1000, StartedAt: 2000, Lost: []string{"gpu-1"}, Run: job.Run{Instance: "gpu-2"},
	}}
	require.Equal(t, `{"id": "b", "status": "running", "position": null, "eta": 12.35, "instance": "gpu-2", "attempts": 2, "tenant": "", "priority": -1, `+
		`"progress": 0.25, "created_at": 1.0, "started_at": 2.0, "finished_at": null, "error": "", "lost": ["gpu-1"]}`, string(pyjson.Marshal(jobValue(running))))
	for state, want := range map[job.State]float64{
		job.Queued: 0, job.Leased: 0.25, job.Running: 0.25, job.Done: 1, job.Failed: 0.25, job.Cancelled: 0.25,
	} {
		require.InDelta(t, want, progress(job.Job{State: state, Progress: 0.25}), 0, state)
	}
	require.Equal(t, `[{"name": "gpu", "url": "", "kind": "", "state": "offline", "running": null, "version": "", "gpu": "", "vram_total": 0, "vram_free": 0, `+
		`"last_seen": null, "reason": "its agent has left"}]`,
		string(pyjson.Marshal(instanceList([]fleet.Instance{{Name: "gpu", State: fleet.Offline, Reason: "its agent has left"}}))))
}

// What a browser would run is not shown under the hub's address.
func TestLinkedFilesRunNothing(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"a.png":  {"image/png", "inline"},
		"a.webm": {"video/webm", "inline"},
		"a.html": {"application/octet-stream", "attachment"},
		"a.svg":  {"application/octet-stream", "attachment"},
		"a":      {"application/octet-stream", ""},
	} {
		header := http.Header{}
		describeLinked(header, name)
		require.Equal(t, want[0], header.Get("Content-Type"), name)
		require.Contains(t, header.Get("Content-Disposition"), want[1]+"", name)
		require.Equal(t, "no-referrer", header.Get("Referrer-Policy"))
		require.Equal(t, "private, no-cache", header.Get("Cache-Control"))
	}
}

// The list has what the page shows of the restarts of a server.
func TestRestartsInTheList(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		report fleet.InstanceReport
		has    string
	}{
		{fleet.InstanceReport{Restarts: 2, RestartAt: 1_700_000_000_999, RestartError: "exit status 1"}, `"restarts": 2, "restart_at": 1700000000, "restart_error": "exit status 1"`},
		{fleet.InstanceReport{Restarts: 2}, `"restarts": 2}`},
		{fleet.InstanceReport{}, `"reason": ""}`},
	} {
		require.Contains(t, string(pyjson.Marshal(instanceValue(fleet.Instance{Report: c.report}))), c.has)
	}
}
