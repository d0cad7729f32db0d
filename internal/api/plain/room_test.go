package plain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/apitest"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/refusal"
	"github.com/comfyhub/comfyhub/internal/submit"
)

// bench is the room on a hub that runs nothing by itself, and knows no node classes.
type bench struct {
	*apitest.Server
	apitest.Jobs

	settings config.Settings
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{settings: config.Settings{}.WithDefaults()}
	b.Server = apitest.Serve(t, func(requests *api.Requests) []api.Optional {
		return Routes(func() Core {
			return Core{Settings: &b.settings, Submitter: b, Canceller: b, Jobs: b, Watches: b, Insight: b, Classes: b}
		}, requests)
	})
	return b
}

func (b *bench) Await(context.Context, string) error { return nil }
func (b *bench) Known(string) *pyjson.Object         { return nil }

var ann, bob = apitest.Client{Tenant: "ann"}, apitest.Client{Tenant: "bob"}

// order submits a job and returns its id.
func (b *bench) order(t *testing.T, more string) string {
	t.Helper()
	var accepted struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(b.Gets(ann, "POST", "/submit", `{"workflow": {}`+more+`}`)), &accepted))
	return accepted.ID
}

const (
	made   = `{"outputs": {"2": {"images": [{"filename": "a.png", "subfolder": "", "type": "output"}]}}, "status": {"status_str": "success", "messages": []}}`
	broken = `{"outputs": {}, "status": {"status_str": "error", "messages": [["execution_error", {"node_type": "A", "exception_message": "no"}]]}}`
)

// Waiting, running, failed and cancelled jobs are reported as such, to their tenant alone.
func TestStatuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := map[string]string{}
	for _, name := range []string{"done", "failed", "runs", "waits", "urgent"} {
		more := ""
		if name == "urgent" {
			more = `, "priority": 5`
		}
		ids[name] = b.order(t, more)
	}
	b.End(ids["done"], job.Done, made)
	b.End(ids["failed"], job.Failed, broken)
	b.Run(ids["runs"], "one")
	require.JSONEq(t, `{"queued": 2, "priority_queue": 1, "standard_queue": 1, "processing": 1, "completed": 1, "failed": 1, "cancelled": 0}`, b.Gets(ann, "GET", "/stats", ""))
	for name, want := range map[string][]string{
		"done":   {`"status": "completed"`, `"progress": 1.0`, `"position": null`, `"error": null`, `"files": [{"node": "2", "filename": "a.png", "subfolder": "", "type": "output", "url": "http://hub/view?filename=a.png`},
		"failed": {`"status": "failed"`, `"error": "A: no"`},
		"runs":   {`"status": "processing"`, `"result": null`},
		"waits":  {`"status": "queued"`, `"position": 0`},
		"urgent": {`"position": 1`, `"priority": 5`},
	} {
		answer := b.Gets(ann, "GET", "/status/"+ids[name], "")
		for _, part := range want {
			require.Contains(t, answer, part, name)
		}
		require.Equal(t, answer, b.Gets(ann, "GET", "/hub/v1/wait/"+ids[name]+"?timeout=0", ""))
	}
	for _, path := range []string{"/status/" + ids["done"], "/wait/none", "/events/none", "/hub/v1/status/none"} {
		status, answer := b.Ask(bob, "GET", path, "")
		require.Equal(t, http.StatusNotFound, status, "another tenant's")
		require.JSONEq(t, `{"detail": "Job not found"}`, answer)
	}
	for name, want := range map[string]string{"waits": `true, "status": "cancelled"`, "runs": `true, "status": "cancelled"`, "done": `false, "status": "completed"`} {
		status, _ := b.Ask(bob, "POST", "/cancel/"+ids[name], "")
		require.Equal(t, http.StatusNotFound, status)
		require.Equal(t, `{"id": "`+ids[name]+`", "cancelled": `+want+`}`, b.Gets(ann, "POST", "/cancel/"+ids[name], ""))
	}
	b.End(ids["done"], job.Done, "") // removed from the history
	require.Contains(t, b.Gets(ann, "GET", "/status/"+ids["done"], ""), `"result": null`)
}

// A stream tells how a job progresses, and ends with it; so does a wait. Both count as sockets.
func TestEvents(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]func(b *bench, id string){
		"completed": func(b *bench, id string) { b.End(id, job.Done, made) },
		"cancelled": func(b *bench, id string) { b.Gets(ann, "POST", "/cancel/"+id, "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				id := b.order(t, "")
				stream, ended := b.Begin(t.Context(), ann, "GET", "/events/"+id, "")
				waits, waited := b.Begin(t.Context(), ann, "GET", "/wait/"+id+"?timeout=60", "")
				synctest.Wait()
				b.Slots = 2
				for _, path := range []string{"/events/", "/wait/"} {
					status, answer := b.Ask(ann, "GET", path+id, "")
					require.Equal(t, http.StatusTooManyRequests, status)
					require.Contains(t, answer, "tenant_limits sockets")
				}
				want := []string{"queued", "done"}
				if name == "completed" {
					want = []string{"queued", "started", "progress", "done"}
					b.Run(id, "one")
					synctest.Wait()
					b.Change(id, func(j *job.Job) { j.Progress = 0.5 })
					synctest.Wait()
				}
				last(b, id)
				<-ended
				<-waited
				require.Equal(t, "text/event-stream", stream.Header().Get("Content-Type"))
				var names []string
				for line := range strings.Lines(stream.Body.String()) {
					if event, ok := strings.CutPrefix(line, "event: "); ok {
						names = append(names, strings.TrimSpace(event))
					}
				}
				require.Equal(t, want, names)
				for _, answer := range []string{stream.Body.String(), waits.Body.String()} {
					require.Contains(t, answer, `"status": "`+name+`"`)
				}
				again := b.order(t, "")
				began := time.Now()
				require.Contains(t, b.Gets(ann, "GET", "/wait/"+again, ""), `"status": "queued"`)
				require.Equal(t, defaultWait, time.Since(began))
			})
		})
	}
}

// Whatever is wrong with a job is reported, each time with the right status.
func TestRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.settings.MaxBody = 64 << 10
	for body, want := range map[string]struct {
		status int
		detail string
	}{
		``:                                        {400, "not JSON"},
		`[`:                                       {400, "not JSON"},
		`[]`:                                      {400, "must be a JSON object"},
		`{}`:                                      {400, "workflow: is missing"},
		`{"workflow": []}`:                        {400, "workflow: must be an object"},
		`{"workflow": {}, "service": "x"}`:        {400, "service"},
		`{"service": "a1111"}`:                    {422, "No A1111 instances"},
		`{"workflow": {}, "priority": 101}`:       {400, "priority"},
		`{"workflow": {}, "priority": 1.5}`:       {400, "priority"},
		`{"workflow": {}, "priority": "1"}`:       {400, "priority"},
		`{"workflow": {}, "band": "first"}`:       {400, "band"},
		`{"workflow": {}, "extra_data": 1}`:       {400, "extra_data"},
		`{"workflow": {}, "client_id": 1}`:        {400, "client_id"},
		`{"workflow": {}, "priorty": 1}`:          {400, "priorty"},
		`{"workflow": {}, "callback_url": 1}`:     {400, "callback_url"},
		`{"workflow": {}, "idempotency_key": ""}`: {400, "idempotency_key"},
		`{"workflow": {}, "prompt_id": "x"}`:      {400, "prompt_id"},
		`{"workflow": ` + strings.Repeat(`[`, 3000) + `}`:                                                                                                             {400, ""},
		`{"workflow": {}, "client_id": "` + strings.Repeat("x", 70<<10) + `"}`:                                                                                        {413, "Maximum request body size"},
		`{"workflow": {"nodes": [{"id": 3, "type": "Nonsense", "mode": 0}], "links": []}}`:                                                                            {422, "cannot be converted"},
		`{"workflow": {"nodes": [{"id": 1, "type": "s"}], "links": [], "definitions": {"subgraphs": [{"id": "s", "nodes": [{"id": 1, "type": "s"}], "links": []}]}}}`: {400, "too deeply"},
	} {
		status, answer := b.Ask(ann, "POST", "/submit", body)
		require.Equal(t, want.status, status, "%.60s: %s", body, answer)
		require.Contains(t, answer, want.detail, "%.60s: %s", body, answer)
	}
	for want, err := range map[string]error{
		`{"detail": "odd: d", "type": "t", "node_errors": {"1": {}}}`: &catalog.Answer{Body: []byte(`{"error": {"type": "t", "message": "odd", "details": "d"}, "node_errors": {"1": {}}}`)},
		`"detail": "Your GPU time of the last 24 hours is used up`:    refusal.TimeSpent(time.Hour),
		`"detail": "wrong host"`:                                      &refusal.Refusal{Kind: refusal.KindCallback, Status: 400, Details: "wrong host"},
	} {
		b.Taken = func(submit.Submission) error { return err }
		status, answer := b.Ask(ann, "POST", "/submit", `{"workflow": {}}`)
		require.GreaterOrEqual(t, status, 400)
		require.Contains(t, answer, want)
	}
	id := "none"
	for _, timeout := range []string{"", "x", "-1", "NaN"} {
		status, _ := b.Ask(ann, "GET", "/wait/"+id+"?timeout="+timeout, "")
		require.Equal(t, http.StatusBadRequest, status)
	}
}

// One key means one job of its tenant, whatever else is sent with it.
func TestKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.order(t, `, "idempotency_key": "k"`)
	b.End(first, job.Done, made)
	require.Contains(t, b.Gets(ann, "POST", "/submit", `{"workflow": {"1": {}}, "idempotency_key": "k"}`), `{"id": "`+first+`", "status": "completed"`)
	require.NotEqual(t, first, b.order(t, `, "idempotency_key": "l"`))
	require.NotContains(t, b.Gets(bob, "POST", "/submit", `{"workflow": {}, "idempotency_key": "k"}`), first)
}

// The operator may have the routes below /hub only, or not at all.
func TestSwitch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for at, want := range map[config.PlainAPI][]int{config.PlainAPIRoot: {200, 200, 404, 405}, config.PlainAPIV1: {404, 200, 404, 405}, config.PlainAPIOff: {404, 404, 404, 404}} {
		b.settings.PlainAPI = at
		var got []int
		// A custom node may have a route of the same name: the hub has just one method of it.
		for _, path := range []string{"/stats", "/hub/v1/stats", "/submit", "/hub/v1/submit"} {
			status, _ := b.Ask(ann, "GET", path, "")
			got = append(got, status)
		}
		require.Equal(t, want, got, at)
	}
}

// documented is the OpenAPI document. The schemas of OpenAPI 3.1 are those of JSON Schema 2020-12.
type documented struct {
	t        *testing.T
	document any
	compiler *jsonschema.Compiler
}

// at follows a JSON pointer.
func (c documented) at(pointer string) map[string]any {
	v := c.document
	for _, name := range strings.Split(pointer, "/")[1:] {
		o, _ := v.(map[string]any)
		v = o[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	}
	o, _ := v.(map[string]any)
	return o
}

// has checks that an answer is one that the document describes.
func (c documented) has(method, path string, status int, contentType string, body []byte) {
	c.t.Helper()
	pointer := fmt.Sprintf("/paths/%s/%s/responses/%d", strings.ReplaceAll(path, "/", "~1"), strings.ToLower(method), status)
	require.NotNil(c.t, c.at(pointer), "%s %s: %d is not documented: %s", method, path, status, body)
	if ref, ok := c.at(pointer)["$ref"].(string); ok {
		pointer = strings.TrimPrefix(ref, "#")
	}
	kind, _, err := mime.ParseMediaType(contentType)
	require.NoError(c.t, err)
	pointer += "/content/" + strings.ReplaceAll(kind, "/", "~1") + "/schema"
	require.NotNil(c.t, c.at(pointer), "%s %s: %d: %s is not documented", method, path, status, kind)
	if kind != "application/json" {
		return
	}
	schema, err := c.compiler.Compile("doc:///openapi.json#" + pointer)
	require.NoError(c.t, err)
	answer, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	require.NoError(c.t, err)
	require.NoError(c.t, schema.Validate(answer), string(body))
}

// Every route of the document is there, and answers as it says.
func TestDocument(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.settings.MaxBody = 64 << 10
		text := b.Gets(ann, "GET", "/hub/v1/openapi.json", "")
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		require.NoError(t, err)
		c := documented{t, document, jsonschema.NewCompiler()}
		require.NoError(t, c.compiler.AddResource("doc:///openapi.json", document))
		ask := func(method, path, id, body string) {
			t.Helper()
			w, ended := b.Begin(t.Context(), ann, method, "/hub/v1"+strings.Replace(path, "{id}", id, 1), body)
			<-ended
			route, _, _ := strings.Cut(path, "?")
			c.has(method, route, w.Code, w.Header().Get("Content-Type"), w.Body.Bytes())
		}
		ids := []string{b.order(t, ""), b.order(t, ""), b.order(t, ""), b.order(t, "")}
		b.End(ids[0], job.Done, made)
		b.End(ids[1], job.Failed, broken)
		b.Run(ids[2], "one")
		for _, body := range []string{`{"workflow": {}}`, "", "[]", `{"service": "a1111"}`, strings.Repeat("[", 70<<10)} {
			ask("POST", "/submit", "", body)
		}
		for _, err := range []error{&catalog.Answer{Body: []byte(`{"error": {"type": "t", "message": "odd"}, "node_errors": {"1": {}}}`)}, refusal.TimeSpent(time.Hour)} {
			b.Taken = func(submit.Submission) error { return err }
			ask("POST", "/submit", "", `{"workflow": {}}`)
		}
		for _, slots := range []int64{100, 0} {
			b.Slots = slots
			for _, id := range append(slices.Clone(ids), "none", "%01") {
				ask("GET", "/status/{id}", id, "")
				ask("GET", "/wait/{id}?timeout=0.01", id, "")
				ask("GET", "/wait/{id}?timeout=x", id, "")
			}
		}
		ask("GET", "/stats", "", "")
		for _, id := range append(ids, "none", "%01") {
			ask("POST", "/cancel/{id}", id, "")
			ask("GET", "/status/{id}", id, "")
		}
		page := b.Gets(ann, "GET", "/hub/v1/docs", "")
		for path := range c.at("/paths") {
			for method, operation := range c.at("/paths/" + strings.ReplaceAll(path, "/", "~1")) {
				summary := operation.(map[string]any)["summary"].(string)
				require.Contains(t, page, "<code>"+strings.ToUpper(method)+" /hub/v1"+path+"</code><td>"+summary+".")
			}
		}
		require.NotContains(t, page, "<script")
		require.NotContains(t, page, "http://")
	})
}
