package ops

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// The shapes are public: their fields, order and kinds.
func TestShapes(t *testing.T) {
	t.Parallel()
	waiting := view.JobView{Job: job.Job{ID: "a", Requester: job.Requester{Tenant: "t"}, State: job.Queued, CreatedAt: 1500}, Position: 2, ETA: -1, Begins: 1500 * time.Millisecond}
	require.Equal(t, `{"id": "a", "status": "queued", "position": 2, "eta": null, "starts_in": 1.5, "instance": null, "attempts": 0, "tenant": "t", "priority": 0, `+
		`"progress": 0.0, "created_at": 1.5, "started_at": null, "finished_at": null, "error": "", "lost": []}`, string(pyjson.Marshal(jobValue(waiting))))
	running := view.JobView{Position: -1, ETA: 12345 * time.Millisecond, Begins: -1, Job: job.Job{
		ID: "b", State: job.Leased, Attempts: 2, Priority: -1, Progress: 0.25, CreatedAt: 1000, StartedAt: 2000, Lost: []string{"gpu-1"}, Run: job.Run{Instance: "gpu-2"},
	}}
	require.Equal(t, `{"id": "b", "status": "running", "position": null, "eta": 12.35, "starts_in": null, "instance": "gpu-2", "attempts": 2, "tenant": "", "priority": -1, `+
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
