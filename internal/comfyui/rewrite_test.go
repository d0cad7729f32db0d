package comfyui

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
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

	e, ok := ParseEntry([]byte(in))
	require.True(t, ok)
	require.Equal(t, Mark{Job: "k", Fence: 3}, e.Mark)
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
	v, err := pyjson.Parse(entry)
	require.NoError(t, err)
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
