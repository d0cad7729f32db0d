package comfyv2

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/submit"
)

func parsed(t testing.TB, body string) pyjson.Value {
	t.Helper()
	v, err := pyjson.Parse([]byte(body))
	require.NoError(t, err)
	return v
}

// Errors of all kinds have one shape, and what is no error goes through.
func TestErrorsHaveOneShape(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write  func(w http.ResponseWriter)
		status int
		body   string
	}{
		"ComfyUI's": {func(w http.ResponseWriter) {
			api.WriteError(w, api.Error{Status: 429, Kind: "queue_full", Message: "It is full", Details: "Wait.", RetryAfter: 10})
		}, 429, `{"error": {"code": "queue_full", "message": "It is full: Wait.", "details": null}}`},
		"a key's": {func(w http.ResponseWriter) {
			api.WriteError(w, api.Error{Status: 401, Kind: "no_api_key", Message: "No"})
		}, 401, `{"error": {"code": "unauthorized", "message": "No", "details": {"reason": "no_api_key"}}}`},
		"aiohttp's": {func(w http.ResponseWriter) { api.WriteTooLarge(w, 1, 2) }, 413, `{"error": {"code": "payload_too_large", "message": "Maximum request body size 1 exceeded, actual body size 2", "details": null}}`},
		"empty":     {func(w http.ResponseWriter) { w.WriteHeader(404) }, 404, `{"error": {"code": "not_found", "message": "Not Found", "details": null}}`},
		"flushed": {func(w http.ResponseWriter) {
			refuse(w, 422, codeWorkflow, "No")
			_ = http.NewResponseController(w).Flush()
		}, 422, `{"error": {"code": "invalid_workflow", "message": "No", "details": null}}`},
		"none": {func(w http.ResponseWriter) { api.WriteValue(w, pyjson.Array{}) }, 200, `[]`},
	} {
		w := httptest.NewRecorder()
		api.Translating(problemOf, func(w http.ResponseWriter, _ *http.Request, _ api.Requester, _ []string) { c.write(w) })(w, nil, api.Requester{}, nil)
		require.Equal(t, c.status, w.Code, name)
		require.JSONEq(t, c.body, w.Body.String(), name)
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	body, kept, err := readRequest(parsed(t, `{"workflow": {"1": {"seed": 18446744073709551615}}, "metadata": {"run": "7"}, "priority": -5000, "number": "x", "client_id": 1, "prompt_id": {},
		"extra_data": {"api_key_comfy_org": "secret", "extra_pnginfo": {"workflow": {}}}}`))
	require.NoError(t, err)
	require.Equal(t, `{"metadata": {"run": "7"}, "priority": -5000}`, kept.encode())
	require.Equal(t, -100, kept.clamped())
	request, err := readGraph(body)
	require.NoError(t, err)
	require.Equal(t, `{"1": {"seed": 18446744073709551615}}`, string(request.Graph.Bytes()), "byte for byte")
	require.NotContains(t, string(request.Extra), "secret")
	require.Contains(t, string(request.Secrets), "secret")

	_, kept, err = readRequest(parsed(t, `{"workflow": {}, "metadata": null, "priority": null, "webhook_url": null, "extra_data": null}`))
	require.NoError(t, err)
	require.Empty(t, kept.encode())

	many := ""
	for n := range maxLabels + 1 {
		many += `"` + strings.Repeat("k", n+2) + `": "", `
	}
	for body, code := range map[string]string{
		`[]`: "400 invalid_request", `{}`: "422 invalid_workflow", `{"workflow": []}`: "422 invalid_workflow",
		`{"workflow": {}, "webhook_url": "http://x"}`:                              "422 invalid_workflow",
		`{"workflow": {}, "inputs": {}}`:                                           "422 invalid_workflow",
		`{"workflow": {"nodes": [], "links": []}}`:                                 "422 workflow_format_ui",
		`{"workflow": {}, "metadata": 1}`:                                          "422 invalid_request",
		`{"workflow": {}, "metadata": {"a": 1}}`:                                   "422 metadata_invalid",
		`{"workflow": {}, "metadata": {"": "x"}}`:                                  "422 metadata_invalid",
		`{"workflow": {}, "metadata": {` + many[:len(many)-2] + `}}`:               "422 metadata_invalid",
		`{"workflow": {}, "metadata": {"a": "` + strings.Repeat("x", 1024) + `"}}`: "422 metadata_invalid",
		`{"workflow": {}, "metadata": "` + strings.Repeat("x", 1025) + `"}`:        "422 invalid_request",
		`{"workflow": {}, "priority": true}`:                                       "422 invalid_request",
		`{"workflow": {}, "priority": 1.0}`:                                        "422 invalid_request",
		`{"workflow": {}, "priority": 1000001}`:                                    "422 invalid_request",
		`{"workflow": {}, "extra_data": "x"}`:                                      "400 invalid_request",
		`{"workflow": {}, "extra_data": {"api_key_comfy_org": null}}`:              "400 invalid_request",
		`{"workflow": {}, "extra_data": {"auth_token_comfy_org": "x"}}`:            "400 invalid_request",
		`{"workflow": {}, "extra_data": {"extra_pnginfo": {"a": {}}}}`:             "400 invalid_request",
		`{"workflow": {}, "extra_data": {"extra_pnginfo": {"workflow": 1}}}`:       "400 invalid_request",
	} {
		_, _, err := readRequest(parsed(t, body))
		var odd *problem
		require.ErrorAs(t, err, &odd, body)
		require.Equal(t, code, itoa(odd.status)+" "+odd.code, body)
	}
}

func itoa(n int) string { return string(pyjson.Int(int64(n))) }

// The largest label that a client may send fits into a job's record.
func TestLargestLabel(t *testing.T) {
	t.Parallel()
	_, kept, err := readRequest(parsed(t, `{"workflow": {}, "metadata": "`+strings.Repeat(`\u0001`, maxMetadata)+`", "priority": -1000000}`))
	require.NoError(t, err)
	require.LessOrEqual(t, len(kept.encode()), submit.MaxLabel)
	require.Equal(t, kept, labelOf(job.Job{Label: kept.encode()}))
	require.Equal(t, label{}, labelOf(job.Job{Label: "{"}), "of a newer hub, say")
}

// References are replaced wherever they are, each asset is looked up once, and one that names
// nothing is never handed on.
func TestReferences(t *testing.T) {
	t.Parallel()
	asked := 0
	hash := "blake3:" + strings.Repeat("0123456789abcdef", 4)
	hashed, _ := files.AssetID(hash)
	walk := func(graph string) (references, string) {
		r := references{known: map[string]pyjson.Value{}, find: func(id string) (string, bool, error) {
			asked++
			return id + ".png", id == "a" || id == "h" || id == hashed, nil
		}}
		v := r.walk(parsed(t, graph))
		return r, string(pyjson.Marshal(v))
	}
	r, out := walk(`{"1": {"inputs": {"image": {"__type": "core/ASSET", "info": {"id": "a", "hash": "other"}}, "list": [[{"__type": "core/ASSET", "info": {"id": "a"}}], 1], "by": {"__type": "core/ASSET", "info": {"hash": "h"}}}}}`)
	require.Empty(t, r.missing)
	require.True(t, r.replaced)
	require.Equal(t, `{"1": {"inputs": {"image": "a.png", "list": [["a.png"], 1], "by": "h.png"}}}`, out)
	require.Equal(t, 2, asked)
	asked = 0
	_, out = walk(`[{"__type": "core/ASSET", "info": {"hash": "` + hash + `"}}, {"__type": "core/ASSET", "info": {"hash": "` + strings.ToUpper(hash) + `"}}]`)
	require.Equal(t, `["`+hashed+`.png", "`+hashed+`.png"]`, out)
	require.Equal(t, 1, asked, "one hash has many spellings")
	r, _ = walk(`{"1": {"__type": "core/OTHER", "info": {"id": "a"}}}`)
	require.False(t, r.replaced)
	for _, ref := range []string{`{"__type": "core/ASSET"}`, `{"__type": "core/ASSET", "info": "x"}`, `{"__type": "core/ASSET", "info": {}}`, `{"__type": "core/ASSET", "info": {"id": "b"}}`} {
		r, _ = walk(`{"1": ` + ref + `}`)
		require.Len(t, r.missing, 1, ref)
	}
	many := strings.Builder{}
	for n := range maxAssets + 1 {
		many.WriteString(`, {"__type": "core/ASSET", "info": {"id": "` + itoa(n) + `"}}`)
	}
	asked = 0
	r, _ = walk(`[` + many.String()[2:] + `]`)
	require.ErrorContains(t, r.err, "256")
	require.Equal(t, maxAssets, asked)
}

func TestJobList(t *testing.T) {
	t.Parallel()
	l, err := readJobList(url.Values{"limit": {"2"}, "status": {"queued, failed"}, "metadata[run]": {"7"}})
	require.NoError(t, err)
	all := []job.Job{
		{Key: "a", CreatedAt: 1, State: job.Queued, Label: `{"metadata": {"run": "7"}}`},
		{Key: "b", CreatedAt: 3, State: job.Failed, Label: `{"metadata": {"run": "7", "x": "y"}}`},
		{Key: "c", CreatedAt: 3, State: job.Failed, Label: `{"metadata": {"run": "7"}}`},
		{Key: "d", CreatedAt: 4, State: job.Done, Label: `{"metadata": {"run": "7"}}`},
		{Key: "e", CreatedAt: 5, State: job.Failed, Label: `{"metadata": "run"}`},
	}
	keys := func(page []job.Job) (keys string) {
		for _, j := range page {
			keys += j.Key
		}
		return keys
	}
	page, more := l.page(all)
	require.Equal(t, "cb", keys(page))
	require.True(t, more)
	next, err := readJobList(url.Values{"limit": {"2"}, "status": {"queued,failed"}, "metadata[run]": {"7"}, "cursor": {cursorOf(page[1])}})
	require.NoError(t, err)
	page, more = next.page(all)
	require.Equal(t, "a", keys(page))
	require.False(t, more)
	for query, code := range map[string]string{
		"limit=0": "invalid_request", "limit=101": "invalid_request", "limit=x": "invalid_request", "status=done": "invalid_request", "cursor=x": "invalid_cursor",
		"metadata[a=b": "invalid_metadata_filter", "metadata[]=b": "invalid_metadata_filter", "metadata[a]=b&metadata[a]=c": "invalid_metadata_filter",
	} {
		q, err := url.ParseQuery(query)
		require.NoError(t, err)
		_, err = readJobList(q)
		var odd *problem
		require.ErrorAs(t, err, &odd, query)
		require.Equal(t, code, odd.code, query)
	}
}

func TestNamesOfAssets(t *testing.T) {
	t.Parallel()
	for path, name := range map[string]string{"cat.png": "cat.png", "input/a/b.png": "b.png", `input\b.png`: "b.png", " a.png ": "a.png", "a..b": "a..b"} {
		got, why := nameOf(path)
		require.Empty(t, why, path)
		require.Equal(t, name, got)
	}
	for _, path := range []string{"", "/etc/x", "..", "input/../x", "input/", "a/", "models/x.safetensors", "custom_nodes/x.py", "a\x00b", "a\nb", "a\xff.png"} {
		_, why := nameOf(path)
		require.NotEmpty(t, why, path)
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	out := readOutcome([]byte(`{"outputs": {"9": {"images": [{"filename": "a b.png", "subfolder": "x/y", "type": "output"}, {"filename": "m.mp4", "subfolder": "", "type": "output"}], "animated": [true], "text": ["x"]},
		"7": {"latents": [{"filename": "l.latent", "subfolder": "", "type": "output"}], "3d": [{"filename": "m.glb", "subfolder": "", "type": "output"}]}},
		"status": {"status_str": "error", "messages": [["execution_cached", {"nodes": ["1"]}], ["execution_error", {"node_id": "3", "node_type": "A", "exception_message": "no", "traceback": ["a\n", "b\n"]}]]}}`))
	kinds := ""
	for _, o := range out.outputs {
		kinds += o.node + " " + o.kind + " " + o.ref.Filename + "\n"
	}
	require.Equal(t, "9 image a b.png\n9 video m.mp4\n7 latent l.latent\n7 file m.glb\n", kinds)
	require.True(t, out.reused)
	require.Equal(t, `{"code": "node_execution_error", "message": "no", "node_id": "3", "class_type": "A", "traceback": "a\nb\n"}`, string(pyjson.Marshal(out.fault)))

	id := outputID("job", out.outputs[0].ref)
	require.Equal(t, id, url.PathEscape(id))
	jobID, ref, ok := readOutputID(id)
	require.True(t, ok)
	require.Equal(t, "job", jobID)
	require.Equal(t, out.outputs[0].ref, ref)
	require.NotEqual(t, id, outputID("other", ref))
}

// A job that an instance gave millions of outputs, and jobs with long errors, make no endless answer.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	file := `{"filename": "a.png", "subfolder": "", "type": "output"},`
	many := strings.Repeat(file, maxOutputs)
	out := readOutcome([]byte(`{"outputs": {"1": {"images": [` + many + file[:len(file)-1] + `]}, "2": {"images": [` + file[:len(file)-1] + `]}}}`))
	require.Len(t, out.outputs, maxOutputs)

	var shown shownJobs
	long := object("error", pyjson.String(strings.Repeat("x", maxListed/2)))
	require.True(t, shown.add(long))
	require.False(t, shown.add(long))
	require.Len(t, shown.list, 1)
	shown = shownJobs{}
	require.True(t, shown.add(object("error", pyjson.String(strings.Repeat("x", 2*maxListed)))), "it would never be listed")
}

func FuzzOutcome(f *testing.F) {
	f.Add([]byte(`{"outputs": {"9": {"images": [{"filename": "a.png", "subfolder": "", "type": "output"}], "text": ["x"]}}, "status": {"messages": [["execution_error", {"node_type": "A", "exception_message": "no"}]]}}`))
	f.Add([]byte(`{"outputs": [1], "status": {"messages": [["execution_cached", []]]}}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, entry []byte) {
		for _, out := range readOutcome(entry).outputs {
			v, err := pyjson.Parse(pyjson.Strict(pyjson.Marshal(outputValue(api.Requester{Base: "http://hub"}, "j", out, 0))))
			require.NoError(t, err)
			require.NotNil(t, v)
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"workflow": {"1": {"__type": "core/ASSET", "info": {"id": "a"}}}, "metadata": {"a": "b"}, "priority": 1, "extra_data": {}}`))
	f.Add([]byte(`{"workflow": {"nodes": []}, "metadata": "x"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		v, err := pyjson.Parse(body)
		if err != nil {
			return
		}
		asked, kept, err := readRequest(v)
		if err != nil {
			return
		}
		require.Equal(t, kept.encode(), labelOf(job.Job{Label: kept.encode()}).encode())
		r := references{known: map[string]pyjson.Value{}, find: func(string) (string, bool, error) { return "x", true, nil }}
		r.walk(asked.Object("workflow"))
		_, _ = readGraph(asked)
	})
}

func FuzzIDs(f *testing.F) {
	f.Add(outputID("job", job.FileRef{Type: "output", Filename: "a.png"}))
	f.Add(cursorOf(job.Job{CreatedAt: 1, Key: "a"}))
	f.Fuzz(func(t *testing.T, id string) {
		if j, ref, ok := readOutputID(id); ok {
			again, same, ok := readOutputID(outputID(j, ref))
			require.True(t, ok)
			require.Equal(t, j, again)
			require.Equal(t, ref, same)
		}
		_, _ = readCursor(id)
	})
}
