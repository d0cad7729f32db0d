package comfyv2

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/apitest"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/refusal"
	"github.com/comfyhub/comfyhub/internal/submit"
	"github.com/comfyhub/comfyhub/internal/view"
)

// bench is the room on a hub that runs nothing by itself.
type bench struct {
	*apitest.Server
	apitest.Jobs

	settings config.Settings
	doing    view.Doing
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{settings: config.Settings{}.WithDefaults()}
	b.Server = apitest.Serve(t, func(requests *api.Requests) []api.Optional {
		return []api.Optional{Routes(func() Core {
			return Core{Settings: &b.settings, Submitter: b, Canceller: b, Jobs: b, Watches: b, Insight: b, Links: b}
		}, requests)}
	})
	return b
}

func (b *bench) Doing(job.Job) view.Doing { return b.doing }
func (b *bench) File(context.Context, string, job.FileRef) (links.File, error) {
	return links.File{Size: 3}, nil
}

var ann, bob = apitest.Client{Tenant: "ann"}, apitest.Client{Tenant: "bob"}

const (
	made   = `{"outputs": {"2": {"images": [{"filename": "a.png", "subfolder": "", "type": "output"}]}}, "status": {"status_str": "success", "messages": []}}`
	broken = `{"outputs": {}, "status": {"status_str": "error", "messages": [["execution_error", {"node_id": "2", "node_type": "A", "exception_message": "no", "traceback": ["x"]}]]}}`
)

// posts submits a job and returns its id.
func (b *bench) posts(t *testing.T, more string, header ...string) string {
	t.Helper()
	var accepted struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(b.Gets(ann, "POST", jobsPath, `{"workflow": {}`+more+`}`, header...)), &accepted))
	return accepted.ID
}

// Waiting, running, failed and cancelled jobs are told as such, to their tenant alone.
func TestStatuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := map[string]string{}
	for _, name := range []string{"done", "failed", "runs", "waits"} {
		ids[name] = b.posts(t, `, "metadata": {"name": "`+name+`"}`)
	}
	b.End(ids["done"], job.Done, made)
	b.End(ids["failed"], job.Failed, broken)
	b.Run(ids["runs"], "one")
	for name, want := range map[string][]string{
		"done":   {`"status": "succeeded"`, `"outputs": [{"node_id": "2", "name": "a.png", "type": "image", "content_type": "image/png", "size_bytes": 3, "id": "`, `"error": null`, `"metrics": {"queue_ms": null`},
		"failed": {`"status": "failed"`, `"error": {"code": "node_execution_error", "message": "no", "node_id": "2", "class_type": "A", "traceback": "x"}`},
		"runs":   {`"status": "running"`, `"outputs": []`, `"queue_position": null`},
		"waits":  {`"status": "queued"`, `"queue_position": 1`, `"urls": {"self": "http://hub/api/v2/jobs/` + ids["waits"] + `"`},
	} {
		self := jobsPath + "/" + ids[name]
		answer := b.Gets(ann, "GET", self, "")
		for _, part := range append(want, `"metadata": {"name": "`+name+`"}`) {
			require.Contains(t, answer, part, name)
		}
		require.Contains(t, b.Gets(ann, "GET", jobsPath+"?metadata%5Bname%5D="+name, ""), `{"jobs": [{"id": "`+ids[name]+`"`)
		place := map[string]string{"waits": "1"}[name]
		require.Contains(t, b.Gets(ann, "GET", jobsPath+"?metadata%5Bname%5D="+name, ""), `"queue_position": `+cmp.Or(place, "null"))
		for _, ask := range []string{"GET ", "GET /events", "GET /workflow", "POST /cancel"} {
			method, path, _ := strings.Cut(ask, " ")
			status, answer := b.Ask(bob, method, self+path, "")
			require.Equal(t, http.StatusNotFound, status)
			require.Contains(t, answer, `"code": "not_found"`)
		}
	}
	require.JSONEq(t, `{"jobs": [], "truncated": false, "next_cursor": null}`, b.Gets(bob, "GET", jobsPath, ""))
	for name, want := range map[string]string{"waits": "canceled", "runs": "canceled", "failed": "failed"} {
		require.Contains(t, b.Gets(ann, "POST", jobsPath+"/"+ids[name]+"/cancel", ""), `"status": "`+want+`"`)
	}
}

// A stream shows what its job does, each picture once, and ends once, with the end of the job.
func TestEvents(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]struct {
		run  bool
		end  func(b *bench, id string)
		want string
	}{
		"succeeded":       {true, func(b *bench, id string) { b.End(id, job.Done, made) }, "status status progress preview output status succeeded"},
		"canceled":        {false, func(b *bench, id string) { b.Gets(ann, "POST", jobsPath+"/"+id+"/cancel", "") }, "status status canceled"},
		"ended before":    {false, nil, "output status succeeded"},
		"another took it": {false, func(b *bench, id string) { b.Change(id, func(j *job.Job) { j.Key = "another" }) }, "status status canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				id := b.posts(t, "")
				if last.end == nil {
					b.End(id, job.Done, made)
				}
				stream, ended := b.Begin(t.Context(), ann, "GET", jobsPath+"/"+id+"/events", "")
				synctest.Wait()
				if last.run {
					b.Slots = 1
					status, answer := b.Ask(ann, "GET", jobsPath+"/"+id+"/events", "")
					require.Equal(t, http.StatusTooManyRequests, status)
					require.Contains(t, answer, `"code": "`+codeStreams+`"`)
					b.doing = view.Doing{Node: "2", Class: "KSampler", Picture: []byte("\xff\xd8"), Kind: "image/jpeg"}
					b.Run(id, "one")
					<-time.After(5 * lookEvery)
				}
				if last.end != nil {
					last.end(b, id)
				}
				<-ended
				require.Equal(t, "text/event-stream", stream.Header().Get("Content-Type"))
				var got []string
				for line := range strings.Lines(stream.Body.String()) {
					if event, ok := strings.CutPrefix(line, "event: "); ok {
						got = append(got, strings.TrimSpace(event))
					}
				}
				words := strings.Fields(last.want)
				require.Equal(t, words[:len(words)-1], got, stream.Body.String())
				require.Contains(t, stream.Body.String(), `{"status": "`+words[len(words)-1]+`"}`)
			})
		})
	}
}

// An idempotency key makes one job for its tenant alone; a job that was refused has not used it.
func TestKeysAndRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ask := func(c apitest.Client, body string, header ...string) string {
		status, answer := b.Ask(c, "POST", jobsPath, body, header...)
		var problem struct{ Error struct{ Code string } }
		require.NoError(t, json.Unmarshal([]byte(answer), &problem), answer)
		return strings.TrimSpace(http.StatusText(status) + " " + problem.Error.Code)
	}
	for _, c := range []struct {
		who       apitest.Client
		key, want string
		err       error
	}{
		{ann, "k", "Unprocessable Entity invalid_workflow", &catalog.Answer{Body: []byte(`{"error": {"type": "t", "message": "odd"}, "node_errors": {}}`)}},
		{ann, "k", "Too Many Requests tenant_time_used_up", refusal.TimeSpent(1)},
		{ann, "k", "Created", nil},
		{ann, "k", "Unprocessable Entity idempotency_key_reuse", nil},
		{bob, "k", "Created", nil},
		{bob, "", "Bad Request invalid_request", nil},
		{bob, strings.Repeat("k", 256), "Bad Request invalid_request", nil},
	} {
		b.Taken = func(submit.Submission) error { return c.err }
		require.Equal(t, c.want, ask(c.who, `{"workflow": {}}`, "Idempotency-Key", c.key), c.key)
	}
	b.settings.MaxBody = 1 << 10
	for body, want := range map[string]string{
		"[":                        "Bad Request invalid_request",
		strings.Repeat("[", 900):   "Bad Request invalid_request",
		strings.Repeat(" ", 2<<10): "Request Entity Too Large payload_too_large",
		`{"workflow": {"nodes": [], "links": []}}`: "Unprocessable Entity " + codeSaved,
	} {
		require.Equal(t, want, ask(ann, body), "%.40s", body)
	}
}
