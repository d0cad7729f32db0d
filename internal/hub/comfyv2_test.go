package hub_test

import (
	"fmt"
	"image/color"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// v2Job is a job as the Comfy API v2 shows it.
type v2Job struct {
	ID          string
	Status      string
	CreatedAt   time.Time  `json:"created_at"`
	CompletedAt *time.Time `json:"completed_at"`
	ExpiresAt   time.Time  `json:"expires_at"`
	Metadata    any
	Priority    int
	Outputs     []v2Output
	Error       *struct {
		Code, Message, Traceback string
		NodeID                   string `json:"node_id"`
		ClassType                string `json:"class_type"`
	}
	URLs struct{ Self, Events, Cancel string }
}

type v2Output struct {
	NodeID string `json:"node_id"`
	Name   string
	Type   string
	Size   int64 `json:"size_bytes"`
	ID     string
	URL    string
	JobID  string `json:"job_id"`
}

// v2Asset is an asset.
type v2Asset struct {
	ID, Hash, URL string
	Size          int64  `json:"size_bytes"`
	Kind          string `json:"content_type"`
	Path          string `json:"file_path"`
	New           bool   `json:"created_new"`
}

// v2 is a client of the Comfy API v2.
type v2 struct {
	t      testing.TB
	b      *bench
	tenant string
}

func (b *bench) v2(tenant string) v2 { return v2{b.t, b, tenant} }

// ask makes a request, to a path or a URL.
func (c v2) ask(method, at, kind, body string) (int, http.Header, string) {
	c.t.Helper()
	header := http.Header{"Content-Type": {kind}, "Test-Login": {c.tenant}}
	if c.tenant != "" {
		maps.Copy(header, basic(c.tenant, ""))
	}
	return c.b.ask(method, strings.TrimPrefix(at, c.b.web.URL), body, header)
}

// do makes a request and returns the answer and, of an error, its code.
func (c v2) do(method, at, kind string, body []byte) (status int, answer []byte, code string) {
	c.t.Helper()
	status, _, text := c.ask(method, at, kind, string(body))
	if status >= 400 && method != http.MethodHead {
		problem := decoded[struct {
			Error struct{ Code, Message string }
		}](c.t, text).Error
		require.NotEmpty(c.t, problem.Message, "%s %s: %s", method, at, text)
		code = problem.Code
	}
	return status, []byte(text), code
}

// submits posts a job, which must be taken.
func (c v2) submits(graph, more string) v2Job {
	c.t.Helper()
	status, answer, _ := c.do("POST", "/api/v2/jobs", "application/json", []byte(`{"workflow": `+graph+more+`}`))
	require.Equal(c.t, http.StatusCreated, status, string(answer))
	return decoded[v2Job](c.t, answer)
}

func (c v2) job(url string) v2Job {
	c.t.Helper()
	status, answer, _ := c.do("GET", url, "", nil)
	require.Equal(c.t, http.StatusOK, status, string(answer))
	return decoded[v2Job](c.t, answer)
}

// ends waits for a job.
func (c v2) ends(j v2Job) v2Job {
	c.t.Helper()
	eventually(c.t, func() bool {
		j = c.job(j.URLs.Self)
		return j.CompletedAt != nil
	}, time.Minute, 5*time.Millisecond)
	return j
}

// uploads posts an asset.
func (c v2) uploads(path, content string, more ...string) (int, v2Asset, string) {
	c.t.Helper()
	kind, body := form(c.t, "file", "any.png", content, append([]string{"content_type", "image/png", "file_path", path, "tags", "input", "tags", "x"}, more...)...)
	status, answer, code := c.do("POST", "/api/v2/assets", kind, []byte(body))
	var a v2Asset
	if code == "" {
		a = decoded[v2Asset](c.t, answer)
	}
	return status, a, code
}

// events reads a stream to its end: the names of the events, progress once, and their data.
func (c v2) events(url string) (names, data []string) {
	c.t.Helper()
	_, header, text := c.ask("GET", url, "", "")
	require.Equal(c.t, "text/event-stream", header.Get("Content-Type"))
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			names = append(names, name)
		}
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			data = append(data, text)
		}
	}
	return names, data
}

// A program submits, polls, and fetches the result, and ComfyUI's API has the same job.
func TestComfyV2Job(t *testing.T) {
	inBench(t, benchOf(1), func(t *testing.T, b *bench) {
		c := b.v2("")
		accepted := c.submits(picture(0x102030), `, "metadata": {"client": "acme"}, "priority": 5000`)
		require.Equal(t, "queued", accepted.Status)
		require.Equal(t, b.web.URL+"/api/v2/jobs/"+accepted.ID, accepted.URLs.Self)
		ended := c.ends(accepted)
		require.Equal(t, "succeeded", ended.Status)
		require.Equal(t, map[string]any{"client": "acme"}, ended.Metadata)
		require.Equal(t, 5000, ended.Priority)
		require.Nil(t, ended.Error)
		require.Equal(t, 24*time.Hour, ended.ExpiresAt.Sub(ended.CreatedAt))
		require.Len(t, ended.Outputs, 1)
		out := ended.Outputs[0]
		require.Equal(t, []string{"2", "image", ended.ID}, []string{out.NodeID, out.Type, out.JobID})
		require.Equal(t, b.web.URL+"/api/v2/assets/"+out.ID+"/content", out.URL)
		status, content, _ := c.do("GET", out.URL, "", nil)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, string(content[:8]), "PNG")
		require.EqualValues(t, len(content), out.Size)
		status, meta, _ := c.do("GET", "/api/v2/assets/"+out.ID, "", nil)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, out.Size, decoded[v2Asset](t, meta).Size)
		_, workflow, _ := c.do("GET", accepted.URLs.Self+"/workflow", "", nil)
		require.JSONEq(t, `{"workflow": `+picture(0x102030)+`, "format": "api"}`, string(workflow))
		_, ok := b.history(accepted.ID)
		require.True(t, ok)
		names, _ := c.events(ended.URLs.Events)
		require.Equal(t, []string{"output", "status"}, names)

		// The output is an input of another job.
		again := c.ends(c.submits(fmt.Sprintf(`{"1": {"class_type": "LoadImage", "inputs": {"image": {"__type": "core/ASSET", "info": {"id": %q}}}},
			"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "again"}}}`, out.ID), ""))
		require.Equal(t, "succeeded", again.Status, again.Error)
	})
}

// An asset is one upload of its tenant, however often its bytes arrive.
func TestComfyV2Assets(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := shared(t, config.TenantLimits{InputFiles: 2}, func(b *bench) { b.instances = append(b.instances, newInstance(t, sim.Config{})) })
		ann, bob := b.v2("ann"), b.v2("bob")
		content := pixel(t, color.Gray{42})
		status, a, _ := ann.uploads("input/cat.png", content)
		require.Equal(t, http.StatusCreated, status)
		require.True(t, a.New)
		require.Equal(t, []string{"image/png", "cat.png", b.web.URL + "/api/v2/assets/" + a.ID + "/content"}, []string{a.Kind, a.Path, a.URL})
		require.EqualValues(t, len(content), a.Size)
		status, again, _ := ann.uploads("dog.png", content, "expected_hash", strings.ToUpper(a.Hash))
		require.Equal(t, http.StatusOK, status)
		require.False(t, again.New)
		require.Equal(t, a.ID, again.ID)
		status, _, code := ann.uploads("dog.png", content+"x", "expected_hash", a.Hash)
		require.Equal(t, "409 hash_mismatch", fmt.Sprint(status, " ", code))

		// Nobody else has it, and nobody else learns that it is there.
		for _, ask := range []struct{ method, path, body, code string }{
			{"GET", "/api/v2/assets/" + a.ID, "", "not_found"},
			{"GET", "/api/v2/assets/" + a.ID + "/content", "", "not_found"},
			{"DELETE", "/api/v2/assets/" + a.ID, "", "not_found"},
			{"GET", "/api/v2/assets/by-hash/" + a.Hash, "", "blob_not_found"},
			{"POST", "/api/v2/assets/from-hash", `{"hash": "` + a.Hash + `"}`, "blob_not_found"},
		} {
			status, _, code := bob.do(ask.method, ask.path, "application/json", []byte(ask.body))
			require.Equal(t, "404 "+ask.code, fmt.Sprint(status, " ", code), ask.path)
		}
		graph := fmt.Sprintf(`{"1": {"class_type": "LoadImage", "inputs": {"image": {"__type": "core/ASSET", "info": {"id": %q, "hash": %q}}}},
			"2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}}}`, a.ID, a.Hash)
		status, answer, code := bob.do("POST", "/api/v2/jobs", "application/json", []byte(`{"workflow": `+graph+`}`))
		require.Equal(t, "422 missing_asset", fmt.Sprint(status, " ", code))
		require.Contains(t, string(answer), a.ID)
		require.Equal(t, "succeeded", ann.ends(ann.submits(graph, "")).Status)

		status, _, _ = ann.do("HEAD", "/api/v2/assets/by-hash/"+a.Hash, "", nil)
		require.Equal(t, http.StatusOK, status)
		_, answer, _ = ann.do("POST", "/api/v2/assets/from-hash", "application/json", []byte(`{"hash": "`+a.Hash+`", "file_path": "z.png"}`))
		require.Equal(t, a.ID, decoded[v2Asset](t, answer).ID)
		_, answer, _ = ann.do("GET", a.URL, "", nil)
		require.Equal(t, content, string(answer))

		// They count as uploads do.
		status, _, _ = ann.uploads("two.png", content+"2")
		require.Equal(t, http.StatusCreated, status)
		status, _, code = ann.uploads("three.png", content+"3")
		require.Equal(t, "507 tenant_inputs_full", fmt.Sprint(status, " ", code))
		status, _, _ = ann.do("DELETE", "/api/v2/assets/"+a.ID, "", nil)
		require.Equal(t, http.StatusNoContent, status)
		status, _, code = ann.do("GET", "/api/v2/assets/"+a.ID, "", nil)
		require.Equal(t, "404 not_found", fmt.Sprint(status, " ", code))
		status, _, _ = ann.uploads("three.png", content+"3")
		require.Equal(t, http.StatusCreated, status)
	})
}

// A stream shows what the job's node is doing, each picture once, and never another job's.
func TestComfyV2Previews(t *testing.T) {
	inBench(t, benchOf(0, serving(sim.Config{TimeScale: 1})), func(t *testing.T, b *bench) {
		c := b.v2("")
		j := c.submits(work(20, 3, "none"), "")
		names, data := c.events(j.URLs.Events)
		require.Equal(t, "status", names[len(names)-1])
		require.JSONEq(t, `{"status": "succeeded"}`, data[len(data)-1])
		pictures := map[string]int{}
		for n, name := range names {
			if name == "preview" {
				require.Contains(t, data[n], `"node_id": "2"`)
				pictures[data[n]]++
			}
		}
		require.GreaterOrEqual(t, len(pictures), 3)
		require.Equal(t, 1, slices.Max(slices.Collect(maps.Values(pictures))))

		other := c.submits(endless(1), "")
		var found job.Job
		eventually(t, func() bool {
			found = must(b.hub.Jobs.Find(t.Context(), job.DefaultTenant, other.ID))(t)
			return len(b.hub.Insight.Doing(found).Picture) > 0
		}, time.Minute, 100*time.Millisecond)
		found.Key = "another"
		require.Empty(t, b.hub.Insight.Doing(found), "not of another job at that server")
	})
}
