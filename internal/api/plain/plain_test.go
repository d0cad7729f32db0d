package plain

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// Errors of all kinds have one shape, and what is no error goes through.
func TestErrorsHaveOneShape(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write  func(w http.ResponseWriter)
		status int
		body   string
	}{
		"ComfyUI's": {func(w http.ResponseWriter) {
			api.WriteError(w, api.Error{Status: 429, Kind: "full", Message: "It is full", Details: "Wait.", RetryAfter: 10})
		}, 429, `{"detail": "It is full: Wait.", "type": "full"}`},
		"newer routes'": {func(w http.ResponseWriter) { api.WriteErrorText(w, 400, "odd") }, 400, `{"detail": "odd"}`},
		"aiohttp's":     {func(w http.ResponseWriter) { api.WriteTooLarge(w, 1, 2) }, 413, `{"detail": "Maximum request body size 1 exceeded, actual body size 2"}`},
		"internal": {func(w http.ResponseWriter) {
			api.WriteInternalError(w, httptest.NewRequest(http.MethodGet, "/", nil))
		}, 500, `{"detail": "Internal Server Error"}`},
		"own":  {func(w http.ResponseWriter) { writeProblem(w, 404, "Job not found") }, 404, `{"detail": "Job not found"}`},
		"none": {func(w http.ResponseWriter) { api.WriteValue(w, pyjson.Array{}) }, 200, `[]`},
	} {
		w := httptest.NewRecorder()
		api.Translating(problemOf, func(w http.ResponseWriter, _ *http.Request, _ api.Requester, _ []string) { c.write(w) })(w, nil, api.Requester{}, nil)
		require.Equal(t, c.status, w.Code, name)
		require.JSONEq(t, c.body, w.Body.String(), name)
		if c.status == 429 {
			require.Equal(t, "10", w.Header().Get("Retry-After"))
		}
	}
}

// The shape is public: its fields, order and kinds.
func TestShapeOfAJob(t *testing.T) {
	t.Parallel()
	waiting := view.JobView{Job: job.Job{ID: "a", State: job.Queued, CreatedAt: 1500, Priority: 3, Progress: 0.5, Reason: "no server is idle"}, Position: 2, ETA: -1}
	require.Equal(t, `{"id": "a", "status": "queued", "created_at": 1.5, "started_at": null, "completed_at": null, "position": 2, "eta": null, `+
		`"progress": 0.0, "priority": 3, "result": null, "error": null}`, string(pyjson.Marshal(jobValue(waiting))))
	failed := view.JobView{Job: job.Job{ID: "b", State: job.Failed, CreatedAt: 1000, StartedAt: 2000, FinishedAt: 3000, Progress: 0.25, Reason: "broken"}, Position: -1, ETA: -1}
	require.Equal(t, `{"id": "b", "status": "failed", "created_at": 1.0, "started_at": 2.0, "completed_at": 3.0, "position": null, "eta": null, `+
		`"progress": 0.25, "priority": 0, "result": null, "error": "broken"}`, string(pyjson.Marshal(jobValue(failed))))
	for state, want := range map[job.State]string{
		job.Queued: "queued", job.Leased: "processing", job.Running: "processing", job.Done: "completed", job.Failed: "failed", job.Cancelled: "cancelled",
	} {
		require.Equal(t, want, statusOf(state))
	}
}

func TestWaitOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": 30 * time.Second, "timeout=0": 0, "timeout=0.5": 500 * time.Millisecond, "timeout=1e9": 5 * time.Minute, "timeout=Inf": 5 * time.Minute} {
		q, err := url.ParseQuery(text)
		require.NoError(t, err)
		got, ok := waitOf(q)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "x", "-1", "NaN", "-Inf", "1s"} {
		_, ok := waitOf(url.Values{"timeout": {text}})
		require.False(t, ok, text)
	}
}

// Names of files cannot change the URL that they are part of.
func TestURLsOfFiles(t *testing.T) {
	t.Parallel()
	out := readOutcome([]byte(`{"outputs": {"9": {"images": [{"filename": "a&type=input #1.png", "subfolder": "x/y", "type": "output"}]}}, "status": {}}`), "https://hub.example")
	require.Len(t, out.files, 1)
	require.Equal(t, "https://hub.example/view?filename=a%26type%3Dinput+%231.png&subfolder=x%2Fy&type=output", out.files[0].(*pyjson.Object).String("url"))
}

func FuzzOutcome(f *testing.F) {
	f.Add([]byte(`{"outputs": {"9": {"images": [{"filename": "a.png", "subfolder": "", "type": "output"}], "text": ["x"]}}, "status": {"messages": [["execution_error", {"node_type": "A", "exception_message": "no"}]]}}`))
	f.Add([]byte(`{"outputs": [1], "status": null}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, entry []byte) {
		out := readOutcome(entry, "http://hub")
		if out.outputs != nil {
			_, err := pyjson.Parse(pyjson.Strict(pyjson.Marshal(out.value())))
			require.NoError(t, err)
		}
	})
}
