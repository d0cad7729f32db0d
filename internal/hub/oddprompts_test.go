package hub_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// oddPrompt is a prompt with odd members. Each is raw JSON, or "" for none.
type oddPrompt struct{ number, extra, client, id, value string }

func (o oddPrompt) body() string {
	body := `{"prompt": {"1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0`
	if o.value != "" {
		body += `, "odd": ` + o.value
	}
	body += `}}, "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}}}`
	for key, raw := range map[string]string{"number": o.number, "extra_data": o.extra, "client_id": o.client, "prompt_id": o.id} {
		if raw != "" {
			body += `, "` + key + `": ` + raw
		}
	}
	return body + "}"
}

// oddPrompts make a real ComfyUI return listings that only Python reads, or that a
// web UI refuses as a whole.
var oddPrompts = []oddPrompt{
	{number: `NaN`},
	{number: `Infinity`},
	{number: `-Infinity`},
	{number: `1e400`},
	{number: `-1e400`},
	{number: `"nan"`},
	{number: `" -inf "`},
	{number: `1180591620717411303424`},
	{number: `-0.0`},
	{number: `true`},
	{value: `NaN`},
	{value: `[-Infinity, {"x": 1e999}]`},
	{value: `"\ud83d"`},
	{value: `"\ude00\ud83d"`},
	{extra: `{"x": NaN, "extra_pnginfo": {"workflow": {"id": NaN}}}`},
	{extra: `{"extra_pnginfo": {"workflow": {"id": 5}}}`},
	{extra: `{"extra_pnginfo": {"workflow": {"id": ["\udc00"]}}}`},
	{extra: `{"extra_pnginfo": {"workflow": 1e999}}`},
	{extra: `{"client_id": "\ud800", "comfyhub": {"priority": Infinity}}`},
	{extra: `{"\ud800": Infinity, "create_time": NaN}`},
	{client: `"\ud83d"`},
	{id: `"\ud83d"`},
	{id: `"\"\u0000/%2F"`},
	{id: `NaN`},
	{number: `NaN`, extra: `{"a": -Infinity}`, id: `"NaN"`},
}

// strictly reads every listing, and everything about one prompt, with a strict
// parser, and requires /api/jobs to be what web interfaces accept.
func (b *bench) strictly(t testing.TB, id string) {
	t.Helper()
	at := url.PathEscape(id)
	for _, path := range []string{
		"/prompt", "/queue", "/history", "/history/" + at, "/api/jobs", "/api/jobs?sort_by=execution_duration", "/api/jobs/" + at, "/hub/jobs", "/hub/jobs/" + at,
	} {
		status, body := b.get(path)
		require.Contains(t, []int{http.StatusOK, http.StatusNotFound}, status, path)
		if status == http.StatusNotFound && body[0] != '{' {
			continue // no such route, for example because the id has a slash
		}
		decoded[any](t, body)
		require.Equal(t, string(body), string(pyjson.Strict(body)), path)
	}
	for id, e := range decoded[map[string]struct{ Prompt []any }](t, b.gets("/history")) {
		require.IsType(t, 0.0, e.Prompt[0], "%s: a number, not null", id)
	}
	_, body := b.get("/api/jobs")
	decoded[struct {
		Jobs []struct {
			Workflow *string `json:"workflow_id"`
			Priority float64
			Created  int64 `json:"create_time"`
		}
	}](t, body)
}

// oddly posts a prompt and reads the listings while it waits or runs and after its end.
func (b *bench) oddly(t testing.TB, o oddPrompt) {
	t.Helper()
	status, answer := b.post("/prompt", o.body())
	if status != http.StatusOK {
		return
	}
	accepted := decoded[struct {
		ID     string `json:"prompt_id"`
		Number float64
	}](t, answer)
	b.strictly(t, accepted.ID)
	eventually(t, func() bool {
		live, err := b.hub.Queue().Live(t.Context(), "")
		return err == nil && len(live) == 0
	}, time.Minute, time.Millisecond)
	b.strictly(t, accepted.ID)
}

// FuzzListings posts odd prompts and reads every listing with a strict parser.
func FuzzListings(f *testing.F) {
	for _, o := range oddPrompts {
		f.Add(o.number, o.extra, o.client, o.id, o.value)
	}
	b := newBench(f, 1)
	f.Fuzz(func(t *testing.T, number, extra, client, id, value string) {
		o := oddPrompt{number, extra, client, id, value}
		for _, raw := range []string{number, extra, client, id, value} {
			if raw != "" && !pythonReads(raw) {
				return
			}
		}
		b := &bench{t: t, web: b.web, hub: b.hub}
		b.oddly(t, o)
		require.NoError(t, b.hub.Queue().ClearHistory(t.Context(), "default", ""))
	})
}

// pythonReads reports whether Python reads a text as JSON.
func pythonReads(raw string) bool {
	_, err := pyjson.Parse([]byte(raw))
	return err == nil
}

// Whatever a prompt says beyond what ComfyUI knows is for custom nodes, whose handlers get the
// whole body. The instance gets it as it was sent, each member once.
func TestUnknownMembersReachTheInstance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var posted []string
		b := newBench(t, 0, func(b *bench) {
			front := simtest.Front(t, newInstance(t, sim.Config{}).url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
				if r.Method == http.MethodPost && r.URL.Path == "/prompt" {
					body, _ := io.ReadAll(r.Body)
					mu.Lock()
					posted = append(posted, string(body))
					mu.Unlock()
					r.Body = io.NopCloser(bytes.NewReader(body))
				}
				rest.ServeHTTP(w, r)
			})
			b.settings.Instances = []string{front.URL}
		})
		last := func() string {
			mu.Lock()
			defer mu.Unlock()
			return posted[len(posted)-1]
		}
		const id = "11111111-1111-4111-8111-111111111111"
		post := func(more string) {
			t.Helper()
			b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q, "client_id": "ann", "front": true, "extra_data": {"x": 1}%s}`, picture(1), id, more))
			b.finished(id)
		}
		post("")
		require.NotContains(t, last(), "workflow_metadata")
		first := must(b.hub.Jobs().Find(t.Context(), job.DefaultTenant, id))(t)
		post(`, "workflow_metadata": {"workflow_id": "w", "n":  1e2}, "of a node": [NaN], "number": 5`)
		require.Contains(t, last(), `"workflow_metadata": {"workflow_id": "w", "n":  1e2}`)
		require.Contains(t, last(), `"of a node": [NaN]`)
		for _, once := range []string{`"prompt":`, `"prompt_id":`, `"extra_data":`, `"workflow_metadata":`} {
			require.Equal(t, 1, strings.Count(last(), once), once)
		}
		for _, never := range []string{`"front":`, `"number":`} {
			require.NotContains(t, last(), never)
		}
		second := must(b.hub.Jobs().Find(t.Context(), job.DefaultTenant, id))(t)
		require.NotEqual(t, first.Key, second.Key, "it is another prompt of the same id")
		post(`, "workflow_metadata": {"workflow_id": "w", "n":  1e2}, "of a node": [NaN], "number": 5`)
		require.Equal(t, second.Key, must(b.hub.Jobs().Find(t.Context(), job.DefaultTenant, id))(t).Key, "sent twice it is one")
	})
}
