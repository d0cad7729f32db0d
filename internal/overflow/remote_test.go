package overflow

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/overflow/overflowtest"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func object(t testing.TB, text string) *pyjson.Object {
	t.Helper()
	v, err := pyjson.Parse([]byte(text))
	require.NoError(t, err)
	o, ok := v.(*pyjson.Object)
	require.True(t, ok)
	return o
}

// The answers are those of RunPod's documentation, of runpod-python and of worker-comfyui.
func TestReadRunPod(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Answer{
		`{"id": "a-u1", "status": "IN_QUEUE"}`:                                                       {State: Queued, Progress: -1, Cost: -1},
		`{"id": "a", "status": "IN_PROGRESS", "delayTime": 31618}`:                                   {State: Running, Progress: -1, Cost: -1, Took: 31618 * time.Millisecond},
		`{"status": "RUNNING", "output": {"type": "progress", "value": 12, "max": 48, "node": "3"}}`: {State: Running, Node: "3", Progress: 0.25, Cost: -1},
		`{"status": "IN_PROGRESS", "output": {"type": "progress", "value": NaN, "max": 9}}`:          {State: Running, Progress: -1, Cost: -1},
		`{"status": "IN_PROGRESS", "output": {"type": "progress", "value": 12, "max": 0}}`:           {State: Running, Progress: -1, Cost: -1},
		`{"status": "COMPLETED", "delayTime": 1000, "executionTime": 2500, "output": {"images": [
			{"filename": "a_00001_.png", "type": "base64", "data": "AA=="}, {"filename": "b.png", "type": "s3_url", "data": "https://b/x"}, 7]}}`: {
			State: Done, Progress: -1, Cost: -1, Took: 3500 * time.Millisecond,
			Files: []OutputFile{{Name: "a_00001_.png", Base64: "AA=="}, {Name: "b.png", URL: "https://b/x"}},
		},
		`{"status": "COMPLETED", "output": {"images": [], "status": "success_no_images"}}`:              {State: Done, Progress: -1, Cost: -1},
		`{"status": "COMPLETED", "output": {"message": "AA==", "status": "success"}}`:                   {State: Done, Progress: -1, Cost: -1, Files: []OutputFile{{Base64: "AA=="}}},
		`{"status": "COMPLETED", "output": {"message": "https://b/x.png", "status": "success"}}`:        {State: Done, Progress: -1, Cost: -1, Files: []OutputFile{{URL: "https://b/x.png"}}},
		`{"status": "COMPLETED", "output": {"message": "the image does not exist", "status": "error"}}`: {State: Failed, Progress: -1, Cost: -1, Reason: "the image does not exist"},
		`{"status": "FAILED", "error": "Job processing failed", "output": {"details": ["Node 3"]}}`:     {State: Failed, Progress: -1, Cost: -1, Reason: "Job processing failed; Node 3"},
		`{"status": "FAILED", "error": "{\"error_type\": \"x\", \"error_message\": \"no\"}"}`:           {State: Failed, Progress: -1, Cost: -1, Reason: "no"},
		`{"status": "CANCELLED"}`: {State: Cancelled, Progress: -1, Cost: -1},
		`{"status": "TIMED_OUT"}`: {State: TimedOut, Progress: -1, Cost: -1},
		`{"status": "COMPLETED", "executionTime": -5, "delayTime": 1e300}`: {State: Done, Progress: -1, Cost: -1, Took: 7 * 24 * time.Hour},
	} {
		require.Equal(t, want, readRunPod(object(t, text)), text)
	}
}

func TestReadService(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Answer{
		`{"status": "queued"}`: {State: Queued, Progress: -1, Cost: -1},
		`{"status": "running", "progress": 0.5, "node": "3", "seconds": 2}`:                                    {State: Running, Node: "3", Progress: 0.5, Cost: -1, Took: 2 * time.Second},
		`{"status": "succeeded", "cost": 0.25, "files": [{"node": "9", "name": "a.png", "url": "https://b"}]}`: {State: Done, Progress: -1, Cost: 0.25, Files: []OutputFile{{Node: "9", Name: "a.png", URL: "https://b"}}},
		`{"status": "failed", "error": "no", "cost": -1}`:                                                      {State: Failed, Progress: -1, Cost: -1, Reason: "no"},
		`{"status": "cancelled"}`: {State: Cancelled, Progress: -1, Cost: -1},
		`{"status": "timed_out"}`: {State: TimedOut, Progress: -1, Cost: -1},
	} {
		require.Equal(t, want, readService(object(t, text)), text)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(`{"status": "COMPLETED", "output": {"images": [{"filename": "a", "type": "base64", "data": "AA=="}]}}`)
	f.Add(`{"status": "succeeded", "files": [{"node": "9"}], "cost": 1}`)
	f.Fuzz(func(t *testing.T, text string) {
		v, err := pyjson.Parse([]byte(text))
		o, ok := v.(*pyjson.Object)
		if err != nil || !ok {
			return
		}
		for _, a := range []Answer{readRunPod(o), readService(o)} {
			require.GreaterOrEqual(t, a.Took, time.Duration(0))
			require.LessOrEqual(t, a.Progress, 1.0)
			require.LessOrEqual(t, a.Cost, float64(maxCost))
			require.LessOrEqual(t, len(a.Reason), 3*maxReason)
		}
	})
}

// What has come of asking for a run is never taken for more than is known.
func TestStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault   overflowtest.Fault
		key     string
		graph   string
		unclear bool
		refused bool
		rests   bool
	}{
		"taken":            {key: "the-secret", graph: `{"1": {"class_type": "SaveImage", "inputs": {}}}`},
		"not reached":      {key: "the-secret", fault: overflowtest.Away, graph: `{"1": {}}`, refused: true, rests: true},
		"answer lost":      {key: "the-secret", fault: overflowtest.Lost, graph: `{"1": {}}`, unclear: true},
		"a proxy's answer": {key: "the-secret", fault: overflowtest.Broken, graph: `{"1": {}}`, unclear: true},
		"wrong key":        {key: "other", graph: `{"1": {}}`, refused: true, rests: true},
		"bad request":      {key: "the-secret", graph: `{}`, refused: true},
	} {
		fake := &overflowtest.Endpoint{Key: "the-secret", Hook: func(string) overflowtest.Fault { return c.fault }}
		for _, remote := range []Remote{
			mustRemote(NewRunPod("e", c.key, "https://a.example", egress.Options{Transport: fake})),
			mustRemote(NewService("https://a.example/x", c.key, egress.Options{Transport: fake})),
		} {
			id, err := remote.Start(t.Context(), Request{Key: "run", Workflow: []byte(c.graph), Timeout: time.Minute, Lifetime: 2 * time.Minute})
			refused, isRefused := errors.AsType[*RefusedError](err)
			require.Equal(t, c.unclear, errors.Is(err, ErrUnclear), "%s: %v", name, err)
			require.Equal(t, c.refused, isRefused, "%s: %v", name, err)
			if isRefused {
				require.Equal(t, c.rests, refused.Endpoint, "%s: %v", name, err)
			}
			require.Equal(t, err == nil, id != "", name)
			if err != nil {
				require.NotContains(t, err.Error(), c.key, name)
				require.NotContains(t, err.Error(), "a.example", name)
			}
		}
	}
}

func mustRemote(r Remote, err error) Remote {
	if err != nil {
		panic(err)
	}
	return r
}

// saying answers with a body.
type saying struct {
	status int
	body   io.Reader
}

func (s saying) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: s.status, Body: io.NopCloser(s.body), Header: http.Header{}}, nil
}

// endless is a text without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	many := `{"status": "IN_QUEUE", "x": [0` + strings.Repeat(", 0", maxValues) + `]}`
	for name, c := range map[string]struct {
		saying

		want string
	}{
		"bytes":    {saying{http.StatusOK, endless{}}, "more than 33554432 bytes"},
		"values":   {saying{http.StatusOK, strings.NewReader(many)}, "more than 100000 values"},
		"an error": {saying{http.StatusBadRequest, endless{}}, "status 400: "},
	} {
		remote := mustRemote(NewRunPod("e", "k", "", egress.Options{Transport: c.saying}))
		_, err := remote.Status(t.Context(), "x")
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestWrongAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "http://a.example", "https://", "https://u:p@a.example", "https://a.example/?x=1"} {
		_, err := NewService(address, "", egress.Options{})
		require.Error(t, err, address)
	}
}
