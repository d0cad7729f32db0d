package comfyui

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const upstream, client = "6b9c1f1e-0b53-4e7b-a7f2-0d8a5c2f4c11", "job \"é\""

func TestRewriteID(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"top level": {
			`{"type": "executing", "data": {"node": "1", "prompt_id": "` + upstream + `"}}`,
			`{"type": "executing", "data": {"node": "1", "prompt_id": "job \"\u00e9\""}}`,
		},
		"every node of progress_state": {
			`{"type": "progress_state", "data": {"prompt_id": "` + upstream + `", "nodes": {"1": {"max": NaN, "prompt_id": "` + upstream + `"}, "2": null, "3": {"prompt_id":"` + upstream + `" }}}}`,
			`{"type": "progress_state", "data": {"prompt_id": "job \"\u00e9\"", "nodes": {"1": {"max": NaN, "prompt_id": "job \"\u00e9\""}, "2": null, "3": {"prompt_id":"job \"\u00e9\"" }}}}`,
		},
		"the same text elsewhere stays": {
			`{"type": "executed", "data": {"node": "` + upstream + `", "output": {"text": ["` + upstream + `"], "prompt_id": "` + upstream + `"}, "prompt_id": "` + upstream + `"}, "prompt_id": "` + upstream + `"}`,
			`{"type": "executed", "data": {"node": "` + upstream + `", "output": {"text": ["` + upstream + `"], "prompt_id": "` + upstream + `"}, "prompt_id": "job \"\u00e9\""}, "prompt_id": "` + upstream + `"}`,
		},
		"another id stays": {
			`{"type": "executing", "data": {"prompt_id": "other"}}`,
			`{"type": "executing", "data": {"prompt_id": "other"}}`,
		},
		"an escaped id is the id": {
			`{"data": {"prompt_id": "\u0036` + upstream[1:] + `"}}`,
			`{"data": {"prompt_id": "job \"\u00e9\""}}`,
		},
		"broken stays": {
			`{"data": {"prompt_id": "` + upstream + `"`, `{"data": {"prompt_id": "` + upstream + `"`,
		},
		"not an object stays": {`["` + upstream + `"]`, `["` + upstream + `"]`},
		"nodes is a list":     {`{"data": {"nodes": ["a"], "prompt_id": 5}}`, `{"data": {"nodes": ["a"], "prompt_id": 5}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := []byte(c.in)
			require.Equal(t, c.want, string(RewriteID(in, upstream, client)))
			require.Equal(t, c.in, string(in), "the input is not changed")
		})
	}
}

func TestRewritePreview(t *testing.T) {
	t.Parallel()
	image := []byte("\xff\xd8 picture")
	metadata := []byte(`{"node_id": "2", "prompt_id": "` + upstream + `", "image_type": "image/jpeg"}`)
	frame := NewPreviewMetadata(metadata, image)
	out := RewritePreview(frame, upstream, client)
	b, ok := ParseBinary(out)
	require.True(t, ok)
	require.Equal(t, client, b.PromptID)
	require.Equal(t, "2", b.Node)
	require.Equal(t, FormatJPEG, b.Format)
	require.Equal(t, image, b.Image)
	require.Equal(t, `{"node_id": "2", "prompt_id": "job \"\u00e9\"", "image_type": "image/jpeg"}`, string(b.Metadata))

	legacy := newPreview(FormatPNG, image)
	require.Equal(t, legacy, RewritePreview(legacy, upstream, client))
	require.Equal(t, frame, RewritePreview(frame, "another", client))
}

func TestRewriteEntry(t *testing.T) {
	t.Parallel()
	in := `{"prompt": [7, "U", {"3": {"inputs": {"seed": 18446744073709551615, "x": NaN}}}, {"client_id": "sid", "comfyhub": {"job": "k", "fence": 3}, "extra_pnginfo": {}}, ["9"]],` +
		` "outputs": {"9": {"text": ["U"]}}, "status": {"status_str": "success", "completed": true, "messages": [` +
		`["execution_start", {"prompt_id": "U", "timestamp": 1}], ["execution_cached", {"nodes": ["U"], "prompt_id": "U"}], ["odd"], "odd"]}, "meta": {"9": {"prompt_id": "U"}}}`
	want := `{"prompt": [7, "C", {"3": {"inputs": {"seed": 18446744073709551615, "x": NaN}}}, {"client_id": "sid", "extra_pnginfo": {}}, ["9"]],` +
		` "outputs": {"9": {"text": ["U"]}}, "status": {"status_str": "success", "completed": true, "messages": [` +
		`["execution_start", {"prompt_id": "C", "timestamp": 1}], ["execution_cached", {"nodes": ["U"], "prompt_id": "C"}], ["odd"], "odd"]}, "meta": {"9": {"prompt_id": "U"}}}`
	require.Equal(t, want, string(RewriteEntry([]byte(in), EntryEdit{From: "U", To: "C"})))

	all := string(RewriteEntry([]byte(in), EntryEdit{
		From: "U", To: "C", Number: "2.0", Graph: []byte(`{"g": 1}`), Extra: []byte(`{"e": 1}`), Outputs: []byte(`{"o": 1}`),
	}))
	require.Contains(t, all, `{"prompt": [2.0, "C", {"g": 1}, {"e": 1}, ["9"]], "outputs": {"o": 1}, "status"`)

	whole := string(RewriteEntry([]byte(in), EntryEdit{Wanted: []string{"9", "12"}, Meta: []byte(`{"m": 1}`)}))
	require.Contains(t, whole, `"extra_pnginfo": {}}, ["9", "12"]], "outputs"`)
	require.Contains(t, whole, `"odd"]}, "meta": {"m": 1}}`)

	e, ok := ParseEntry([]byte(in))
	require.True(t, ok)
	require.Equal(t, Mark{Job: "k", Fence: 3}, e.Mark)
	require.Equal(t, `{"9": {"prompt_id": "U"}}`, string(e.Meta))
	require.True(t, ParseMark([]byte(`{"comfyhub": {"job": "k", "fence": 3, "part": true}}`)).Part)
	require.Equal(t, []string{"9"}, e.Wanted)
	require.Equal(t, "success", e.Status)
	require.True(t, e.Completed)
	require.Empty(t, e.End)
	require.Len(t, e.Messages, 4)

	require.Equal(t, `{"status": null}`, string(RewriteEntry([]byte(`{"status": null}`), EntryEdit{From: "a", To: "b"})))
	require.Equal(t, `{"prompt": [1, "U"`, string(RewriteEntry([]byte(`{"prompt": [1, "U"`), EntryEdit{From: "U", To: "b"})))
}

func TestWithoutMember(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"x": 1}`:                        `{}`,
		`{ "x": 1 }`:                      `{ }`,
		`{"x": 1, "a": 2}`:                `{"a": 2}`,
		`{"a": 2, "x": {"y": [1]}}`:       `{"a": 2}`,
		`{"a": 2, "x": 1, "b": NaN}`:      `{"a": 2, "b": NaN}`,
		`{"x": 1, "x": 2}`:                `{}`,
		`{"x": 1, "a": 1, "x": 2}`:        `{"a": 1}`,
		`{"a": {"x": 1}}`:                 `{"a": {"x": 1}}`,
		`{}`:                              `{}`,
		`null`:                            `null`,
		`{"x": 1`:                         `{"x": 1`,
		`{"\u0078": 1,"a":1}`:             `{"a":1}`,
		`{"x": 1, "x": 2, "x":3, "b": 1}`: `{"b": 1}`,
	} {
		require.Equal(t, want, string(WithoutMember([]byte(in), "x")), in)
	}
}

func TestNewEntryReadsBack(t *testing.T) {
	t.Parallel()
	entry := NewEntry(EntryParts{
		Number: "NaN", ID: client, Graph: []byte(`{"1": {}}`), Extra: []byte(`{}`), Outputs: []string{"1"},
		Messages: []EntryMessage{{Type: TypeExecutionError, Data: []byte(`{"prompt_id": "x"}`)}},
	})
	v := must.Get(pyjson.Parse(entry))(t)
	o := v.(*pyjson.Object)
	require.Equal(t, pyjson.String(client), o.Array("prompt")[1])
	require.Equal(t, "error", o.Object("status").String("status_str"))
	e, ok := ParseEntry(entry)
	require.True(t, ok)
	require.Equal(t, TypeExecutionError, e.End)
	require.Equal(t, `{"prompt_id": "x"}`, string(e.EndData))
}

// FuzzRewriteID holds the law of all rewriting: whatever JSON comes in, only
// the ids at their places change, and every other byte stays.
func FuzzRewriteID(f *testing.F) {
	f.Add([]byte(`{"type": "progress_state", "data": {"prompt_id": "U", "nodes": {"1": {"prompt_id": "U"}}}}`))
	f.Add([]byte(`{"data": {"prompt_id": "U", "output": {"a": [NaN, "\ud800"]}}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		out := RewriteID(in, "U", "CC")
		if bytes.Equal(in, out) {
			return
		}
		back := RewriteID(out, "CC", "U")
		if !bytes.Contains(in, []byte("CC")) && !bytes.Contains(in, []byte(`\u`)) {
			require.Equal(t, string(in), string(back), "the way back gives the same bytes")
		}
		v, err := pyjson.Parse(in)
		if err != nil {
			return
		}
		got, err := pyjson.Parse(out)
		require.NoError(t, err, "what was JSON stays JSON: %q", out)
		if strings.Count(string(in), `"data"`) > 1 || strings.Contains(string(in), `\`) {
			return // repeated keys: the last counts for Python, all are rewritten
		}
		want, _ := v.(*pyjson.Object)
		have, _ := got.(*pyjson.Object)
		require.Equal(t, want.Keys(), have.Keys())
		for _, key := range want.Keys() {
			if key != "data" {
				require.Equal(t, string(want.Raw(key)), string(have.Raw(key)))
			}
		}
	})
}

func FuzzParseBinary(f *testing.F) {
	f.Add(newPreview(FormatJPEG, []byte("x")))
	f.Add(NewPreviewMetadata([]byte(`{"prompt_id": "U"}`), []byte("x")))
	f.Add(append(binary.BigEndian.AppendUint32(nil, EventText), 0, 0, 0, 1, 'n', 't'))
	f.Fuzz(func(t *testing.T, frame []byte) {
		b, ok := ParseBinary(frame)
		out := RewritePreview(frame, "U", "longer")
		if !ok {
			require.Equal(t, frame, out)
			return
		}
		again, ok := ParseBinary(out)
		require.True(t, ok)
		require.Equal(t, b.Image, again.Image)
		require.Equal(t, b.Text, again.Text)
	})
}

func TestRenumberEntry(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"prompt": [3, "id", {"1": {}}, {}, ["1"]], "outputs": {}}`: `{"prompt": [12, "id", {"1": {}}, {}, ["1"]], "outputs": {}}`,
		`{"outputs": {"prompt": [3]}, "prompt": [ NaN ]}`:            `{"outputs": {"prompt": [3]}, "prompt": [ 12 ]}`,
		`{"prompt": []}`:     `{"prompt": []}`,
		`{"prompt": {}}`:     `{"prompt": {}}`,
		`{"outputs": {}}`:    `{"outputs": {}}`,
		`{"prompt": [3, "id`: `{"prompt": [12, "id`, // what comes behind is not looked at
		`{"prompt": ["`:      `{"prompt": ["`,
		``:                   ``,
	} {
		require.Equal(t, want, string(RenumberEntry([]byte(in), "12")))
	}
}

func FuzzRewriteEntry(f *testing.F) {
	f.Add([]byte(`{"prompt": [1, "U", {}, {"comfyhub": {}}, []], "status": {"messages": [["a", {"prompt_id": "U"}]]}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, out := range [][]byte{RewriteEntry(in, EntryEdit{From: "U", To: "CC"}), RenumberEntry(in, "12")} {
			if _, err := pyjson.Parse(in); err == nil {
				_, err := pyjson.Parse(out)
				require.NoError(t, err, "%q", out)
			}
		}
		ParseEntry(in)
		_, _ = ParseQueue(in)
		_, _ = ParseStats(in)
		ParseMessage(in)
	})
}

func newPreview(format uint32, image []byte) []byte {
	frame := binary.BigEndian.AppendUint32(nil, EventPreview)
	return append(binary.BigEndian.AppendUint32(frame, format), image...)
}

func TestAlias(t *testing.T) {
	t.Parallel()
	const long = "0f0e0d0c-0b0a-0908-0706-050403020100"
	for _, c := range []struct{ id, kind, in, want string }{
		{long, "query", "a=b&clientId=" + long, "a=b&clientId=ALIAS"},
		{long, "query", "who=" + long + "&x=1" + long, "who=ALIAS&x=1" + long},
		{"me", "query", "client_id=me&text=me&sid=me", "client_id=ALIAS&text=me&sid=ALIAS"},
		{"a b", "query", "client_id=a+b&clientId=a%20b", "client_id=ALIAS&clientId=ALIAS"},
		{long, "path", "/panel/" + long + "/x", "/panel/ALIAS/x"},
		{long, "path", "/panel/x" + long, "/panel/x" + long},
		{"panel", "path", "/panel/x", "/panel/x"},
		{long, "body", `{"a": "` + long + `", "b": ["` + long + `"]}`, `{"a": "ALIAS", "b": ["ALIAS"]}`},
		{long, "body", "x" + long + " " + long + "-1 " + long, "x" + long + " " + long + "-1 ALIAS"},
		{
			long, "body", "--b\r\nContent-Disposition: form-data; name=\"sid\"\r\n\r\n" + long + "\r\n--b--",
			"--b\r\nContent-Disposition: form-data; name=\"sid\"\r\n\r\nALIAS\r\n--b--",
		},
		{
			"me", "body", `{"text": "me", "client_id":"me", "clientId" : "me", "x": {"sid": "me"}, "my_client_id": "me"}`,
			`{"text": "me", "client_id":"ALIAS", "clientId" : "ALIAS", "x": {"sid": "ALIAS"}, "my_client_id": "me"}`,
		},
		{"me", "body", "client_id=me&text=me&sid=me", "client_id=ALIAS&text=me&sid=ALIAS"},
		{`.*`, "body", `{"client_id": "xx", "sid": ".*"}`, `{"client_id": "xx", "sid": "ALIAS"}`},
		{"", "body", `{"client_id": ""}`, `{"client_id": ""}`},
		// JSON stays JSON, whatever a client is called.
		{
			`0123456789abcdef\`, "body", `{"client_id": "0123456789abcdef\\", "text": "0123456789abcdef\\"}`,
			`{"client_id": "ALIAS", "text": "0123456789abcdef\\"}`,
		},
		{
			"1234567890123456", "body", `{"seed": 1234567890123456, "a": ["1234567890123456"]}`,
			`{"seed": 1234567890123456, "a": ["ALIAS"]}`,
		},
		{"1, 2, 3, 4, 5, 6", "body", `[1, 2, 3, 4, 5, 6, "1, 2, 3, 4, 5, 6"]`, `[1, 2, 3, 4, 5, 6, "ALIAS"]`},
		{"nnnnnnnnnnnnnnnn", "body", `["\nnnnnnnnnnnnnnnn", "nnnnnnnnnnnnnnnn"]`, `["\nnnnnnnnnnnnnnnn", "ALIAS"]`},
	} {
		a := Alias{Client: c.id, Upstream: "ALIAS"}
		got := ""
		switch c.kind {
		case "query":
			got = a.InQuery(c.in)
		case "path":
			got = a.InPath(aiohttp.MustPath(c.in)).Decoded()
		case "body":
			got = string(a.InBody([]byte(c.in)))
		}
		require.Equal(t, c.want, got, c.in)
	}
}

func TestAliasOutside(t *testing.T) {
	t.Parallel()
	a := Alias{Client: `my "own" \ id`, Upstream: "0123456789abcdef0123456789abcdef"}
	var got map[string]string
	require.NoError(t, json.Unmarshal(a.Outside([]byte(`{"sid": "`+a.Upstream+`"}`)), &got))
	require.Equal(t, map[string]string{"sid": a.Client}, got)
}

func TestClientsNamed(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"a", "b", "c", "e"}, ClientsNamed(
		url.Values{"clientId": {"a"}, "client_id": {"b"}, "x": {"y"}},
		[]byte(`{"sid": "c", "client_id": "a", "deep": {"client_id": "d"}, "clientID": "e", "clientid": 7}`)))
	require.Empty(t, ClientsNamed(nil, []byte(`[{"client_id": "a"}`)))
}

// FuzzAlias: whatever a client is called, what an instance is sent stays JSON,
// and what comes back is what went out.
func FuzzAlias(f *testing.F) {
	f.Add("0f0e0d0c0b0a09080706050403020100", "text")
	f.Add("me", "me")
	f.Add("\"\\\x00é", "client_id")
	f.Add(`0123456789abcdef\`, "0")
	f.Add("1234567890123456", "[1234567890123456]")
	f.Add("nnnnnnnnnnnnnnnn", "\nnnnnnnnnnnnnnnn")
	f.Fuzz(func(t *testing.T, id, text string) {
		if id == "" {
			return
		}
		a := Alias{Client: id, Upstream: "0123456789abcdef0123456789abcdef"}
		value := quoted(text)
		if json.Valid([]byte(text)) {
			value = []byte(text)
		}
		in := slices.Concat([]byte(`{"client_id": `), quoted(id), []byte(`, "text": `), value, []byte(`}`))
		if !json.Valid(in) {
			return
		}
		out := a.InBody(in)
		require.True(t, json.Valid(out), "%s", out)
		_ = a.InQuery(text)
		require.True(t, json.Valid(a.Outside(out)))
	})
}

func TestShapeJob(t *testing.T) {
	t.Parallel()
	const (
		preview = `"preview_output": {"filename": "a.png", "type": "output", "nodeId": "9", "mediaType": "images"`
		failure = `"node_id": "1", "node_type": "A", "exception_message": "m", "exception_type": "t", "traceback": ["x"]`
	)
	same := []string{
		`{}`, `{"workflow_id": "w", ` + preview + `}, "execution_start_time": 1, "execution_end_time": 2.5}`,
		`{"execution_error": {` + failure + `, "executed": ["2"], "timestamp": 7, "current_inputs": {"a": [1]}}}`,
		`{"preview_output": {"content": "text", "nodeId": "1", "mediaType": "text"}}`,
	}
	cases := map[string]string{
		`{"workflow_id": 5, "execution_start_time": "1", "execution_end_time": NaN}`: `{}`,
		`{"workflow_id": null}`: `{}`, `{"preview_output": 5}`: `{}`, `{"execution_error": "x"}`: `{}`,
		`{` + preview + `, "subfolder": null}}`:                                                                `{}`,
		`{"preview_output": {"type": "output", "nodeId": "1"}}`:                                                `{}`,
		`{"preview_output": {"type": "elsewhere", "filename": "a.png", "nodeId": "1", "mediaType": "images"}}`: `{}`,
		`{"preview_output": {"type": ["temp"], "nodeId": "1", "mediaType": "images"}}`:                         `{}`,
		`{"execution_error": {"node_id": 2, "traceback": ["x", 5], "executed": [2], "timestamp": null, "more": 1}}`: `{"execution_error": {"node_id": "", "traceback": [], "more": 1,
			"node_type": "", "exception_message": "", "exception_type": ""}}`,
	}
	for _, text := range same {
		cases[text] = text
	}
	for in, want := range cases {
		v, err := pyjson.Parse([]byte(in))
		require.NoError(t, err, in)
		w := must.Get(pyjson.Parse([]byte(want)))(t)
		ShapeJob(v.(*pyjson.Object))
		require.Equal(t, string(pyjson.Marshal(w)), string(pyjson.Marshal(v)), in)
	}
}
