package comfyui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// entryWith is a history entry with the given extra_data, outputs and messages.
func entryWith(extra, outputs, messages string) []byte {
	return []byte(`{"prompt": [3, "id", {"1": {"class_type": "A", "inputs": {}}}, ` + extra + `, ["1"]], "outputs": ` + outputs +
		`, "status": {"status_str": "success", "completed": true, "messages": [` + messages + `]}, "meta": {}}`)
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	const (
		start = `["execution_start", {"prompt_id": "id", "timestamp": 10}]`
		saved = `{"filename": "a.png", "subfolder": "s", "type": "output"}`
		temp  = `{"filename": "t.png", "subfolder": "", "type": "temp"}`
	)
	for name, c := range map[string]struct{ extra, outputs, messages, want string }{
		"nothing": {`{}`, `{}`, ``, `{"outputs_count": 0, "previewable_outputs_count": 0}`},
		"success": {
			`{"extra_pnginfo": {"workflow": {"id": "wf"}}}`, `{"9": {"images": [` + temp + `, ` + saved + `], "animated": [false]}}`,
			start + `, ["execution_success", {"prompt_id": "id", "timestamp": 14}]`,
			`{"execution_start_time": 10, "execution_end_time": 14, "outputs_count": 2, "previewable_outputs_count": 2,
				"preview_output": {"filename": "a.png", "subfolder": "s", "type": "output", "nodeId": "9", "mediaType": "images"}, "workflow_id": "wf"}`,
		},
		"failure": {
			`{}`, `{}`, start + `, ["execution_error", {"node_id": "2", "timestamp": 12}]`,
			`{"execution_start_time": 10, "execution_end_time": 12, "execution_error": {"node_id": "2", "timestamp": 12}, "outputs_count": 0, "previewable_outputs_count": 0}`,
		},
		"interrupted": {
			`{}`, `{}`, start + `, ["execution_interrupted", {"timestamp": 12}]`,
			`{"execution_start_time": 10, "execution_end_time": 12, "outputs_count": 0, "previewable_outputs_count": 0}`,
		},
		"temporary before a text": {
			`{}`, `{"1": {"text": ["hello"]}, "2": {"images": [` + temp + `]}}`, ``,
			`{"outputs_count": 1, "previewable_outputs_count": 1,
				"preview_output": {"filename": "t.png", "subfolder": "", "type": "temp", "nodeId": "2", "mediaType": "images"}}`,
		},
		"text": {
			`{}`, `{"1": {"text": ["h\u00e9llo", "second"]}}`, ``,
			`{"outputs_count": 0, "previewable_outputs_count": 0, "preview_output": {"content": "h\u00e9llo", "nodeId": "1", "mediaType": "text"}}`,
		},
		"long text": {
			`{}`, `{"1": {"text": ["` + strings.Repeat("\u00e9", 1025) + `"]}}`, ``,
			`{"outputs_count": 0, "previewable_outputs_count": 0, "preview_output": {"content": "` + strings.Repeat("\u00e9", 1024) + `", "truncated": true, "nodeId": "1", "mediaType": "text"}}`,
		},
		"text file after a picture": {
			`{}`, `{"1": {"files": [{"filename": "a.TXT", "type": "output"}]}, "2": {"images": [` + temp + `]}}`, ``,
			`{"outputs_count": 2, "previewable_outputs_count": 2,
				"preview_output": {"filename": "t.png", "subfolder": "", "type": "temp", "nodeId": "2", "mediaType": "images"}}`,
		},
		"3D model by its name": {
			`{}`, `{"1": {"result": ["m.glb", null, {"position": 1}]}}`, ``,
			`{"outputs_count": 2, "previewable_outputs_count": 1,
				"preview_output": {"filename": "m.glb", "type": "output", "subfolder": "", "mediaType": "3d", "nodeId": "1"}}`,
		},
		"by format": {
			`{}`, `{"1": {"gifs": [{"filename": "v.webm", "format": "video/webm", "type": "output"}, {"filename": "x.latent"}]}}`, ``,
			`{"outputs_count": 2, "previewable_outputs_count": 1,
				"preview_output": {"filename": "v.webm", "format": "video/webm", "type": "output", "nodeId": "1", "mediaType": "gifs"}}`,
		},
		// A real server answers 500 to the whole listing for each of these.
		"pnginfo null":        {`{"extra_pnginfo": null}`, `{}`, ``, `{"outputs_count": 0, "previewable_outputs_count": 0}`},
		"pnginfo a string":    {`{"extra_pnginfo": "x"}`, `{}`, ``, `{"outputs_count": 0, "previewable_outputs_count": 0}`},
		"workflow null":       {`{"extra_pnginfo": {"workflow": null}}`, `{}`, ``, `{"outputs_count": 0, "previewable_outputs_count": 0}`},
		"workflow id a 5":     {`{"extra_pnginfo": {"workflow": {"id": 5}}}`, `{}`, ``, `{"outputs_count": 0, "previewable_outputs_count": 0, "workflow_id": 5}`},
		"outputs no object":   {`{}`, `[1]`, ``, `{"outputs_count": 0, "previewable_outputs_count": 0}`},
		"node output a text":  {`{}`, `{"1": "x", "2": {"images": "x"}}`, ``, `{"outputs_count": 0, "previewable_outputs_count": 0}`},
		"message without any": {`{}`, `{}`, `["execution_start", null], ["execution_success"], 5`, `{"outputs_count": 0, "previewable_outputs_count": 0}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := must.Get(pyjson.Parse([]byte(c.want)))(t)
			entry := entryWith(c.extra, c.outputs, c.messages)
			require.Equal(t, string(pyjson.Marshal(want)), string(pyjson.Marshal(Summarize(entry))))
			kept, whole := ParseSummary(SummarizeStored(entry))
			require.True(t, whole)
			require.Equal(t, string(pyjson.Marshal(want)), string(pyjson.Marshal(kept)))
		})
	}
}

func TestLargeSummariesAreCut(t *testing.T) {
	t.Parallel()
	entry := entryWith(`{"extra_pnginfo": {"workflow": {"id": "wf"}}}`, `{}`,
		`["execution_start", {"timestamp": 1}], ["execution_error", {"timestamp": 5, "traceback": ["`+strings.Repeat("x", maxSummary)+`"]}]`)
	stored := SummarizeStored(entry)
	require.Less(t, len(stored), 200)
	kept, whole := ParseSummary(stored)
	require.False(t, whole)
	require.Equal(t, "wf", kept.String("workflow_id"))
	end, _ := kept.Get("execution_end_time")
	require.Equal(t, pyjson.Int(5), end)

	for _, damaged := range []string{"", "{", "[]", "null"} {
		kept, whole = ParseSummary([]byte(damaged))
		require.NotNil(t, kept)
		require.False(t, whole)
	}
}

func TestNormalizeOutputs(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"1": {"result": ["m.GLB", null, "x", 5], "animated": [true, null], "text": "t"}, "2": null}`: `{"1": {"result": [{"filename": "m.GLB", "type": "output", "subfolder": "", "mediaType": "3d"}, "x", 5], "animated": [true, null], "text": "t"}, "2": null}`,
		``:    `{}`,
		`[1]`: `[1]`,
	} {
		require.Equal(t, want, string(pyjson.Marshal(NormalizeOutputs([]byte(in)))))
	}
}

func FuzzSummarize(f *testing.F) {
	f.Add(entryWith(`{"extra_pnginfo": null}`, `{"1": {"images": [{"filename": "a", "type": "output"}], "text": [[]]}}`, `["execution_start", {"timestamp": NaN}]`))
	f.Add([]byte(`{"prompt": []}`))
	f.Fuzz(func(t *testing.T, entry []byte) {
		stored := SummarizeStored(entry)
		require.LessOrEqual(t, len(stored), maxSummary)
		if _, whole := ParseSummary(stored); whole {
			must.Get(pyjson.Parse(stored))(t)
		}
	})
}

func TestRename(t *testing.T) {
	t.Parallel()
	rename := func(f job.FileRef) job.FileRef {
		f.Filename = strings.Replace(f.Filename, "_00001_", "_00042_", 1)
		return f
	}
	for name, c := range map[string]struct{ in, want string }{
		"images": {
			`{"images": [{"filename": "A_00001_.png", "subfolder": "", "type": "output"}, {"filename": "B_00001_.png", "subfolder": "s", "type": "temp"}], "animated": [true]}`,
			`{"images": [{"filename": "A_00042_.png", "subfolder": "", "type": "output"}, {"filename": "B_00042_.png", "subfolder": "s", "type": "temp"}], "animated": [true]}`,
		},
		"video with its full path": {
			`{"gifs": [{"filename": "v_00001_.mp4", "subfolder": "x", "type": "output", "format": "video/h264", "frame_rate": 8.0, "workflow": "v_00001_.png", "fullpath": "/data/output/x/v_00001_.mp4"}]}`,
			`{"gifs": [{"filename": "v_00042_.mp4", "subfolder": "x", "type": "output", "format": "video/h264", "frame_rate": 8.0, "workflow": "v_00001_.png", "fullpath": "/data/output/x/v_00042_.mp4"}]}`,
		},
		"windows path": {
			`{"g": {"filename": "v_00001_.mp4", "subfolder": "", "type": "output", "fullpath": "C:\\out\\v_00001_.mp4"}}`,
			`{"g": {"filename": "v_00042_.mp4", "subfolder": "", "type": "output", "fullpath": "C:\\out\\v_00042_.mp4"}}`,
		},
		"a path elsewhere in the output": {
			`{"result": ["3d/m_00001_.glb", {"fov": NaN}], "3d": [{"filename": "m_00001_.glb", "subfolder": "3d", "type": "output"}]}`,
			`{"result": ["3d/m_00042_.glb", {"fov": NaN}], "3d": [{"filename": "m_00042_.glb", "subfolder": "3d", "type": "output"}]}`,
		},
		"a path of another folder stays": {
			`{"result": ["4d/m_00001_.glb"], "3d": [{"filename": "m_00001_.glb", "subfolder": "3d", "type": "output"}]}`,
			`{"result": ["4d/m_00001_.glb"], "3d": [{"filename": "m_00042_.glb", "subfolder": "3d", "type": "output"}]}`,
		},
		"a text that is the name stays": {
			`{"text": ["A_00001_.png"], "images": [{"filename": "A_00001_.png", "subfolder": "", "type": "output"}]}`,
			`{"text": ["A_00001_.png"], "images": [{"filename": "A_00042_.png", "subfolder": "", "type": "output"}]}`,
		},
		"nested deeply, in any order of members": {
			`{"9": {"a": {"b": [[{"type": "output", "x": {"y": 1}, "subfolder": "", "filename": "A_00001_.png"}]]}}}`,
			`{"9": {"a": {"b": [[{"type": "output", "x": {"y": 1}, "subfolder": "", "filename": "A_00042_.png"}]]}}}`,
		},
		"no subfolder is no file": {
			`{"a": {"filename": "A_00001_.png", "type": "output"}}`, `{"a": {"filename": "A_00001_.png", "type": "output"}}`,
		},
		"an asset of the same file": {
			`{"a": {"filename": "A_00001_.png", "subfolder": "", "type": "output", "width": 48.0, "asset": {"size": 12345678901234567890, "file_path": "output/A_00001_.png"}}}`,
			`{"a": {"filename": "A_00042_.png", "subfolder": "", "type": "output", "width": 48.0, "asset": {"size": 12345678901234567890, "file_path": "output/A_00042_.png"}}}`,
		},
		"null":   {`null`, `null`},
		"broken": {`{"a": [{"filename": "A_00001_.png", "subfolder": "", "type": "output"}`, `{"a": [{"filename": "A_00001_.png", "subfolder": "", "type": "output"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, string(Rename([]byte(c.in), rename)))
		})
	}
}

func TestRenameAllParts(t *testing.T) {
	t.Parallel()
	in := `{"filename": "\u00e9.png", "subfolder": "a\\b", "type": "temp"}`
	files := Files([]byte(in))
	require.Len(t, files, 1)
	require.Equal(t, job.FileRef{Type: "temp", Subfolder: `a\b`, Filename: "é.png"}, files[0].Ref)
	out := Splice([]byte(in), files, []job.FileRef{{Type: "output", Subfolder: "ü", Filename: "x.png"}})
	require.Equal(t, `{"filename": "x.png", "subfolder": "\u00fc", "type": "output"}`, string(out))
}

// FuzzRename: outputs are custom nodes' own affair; nothing but names may change.
func FuzzRename(f *testing.F) {
	f.Add([]byte(`{"images": [{"filename": "A", "subfolder": "", "type": "output", "fullpath": "/x/A"}], "r": ["b/A", NaN]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		require.Equal(t, string(in), string(Rename(in, func(f job.FileRef) job.FileRef { return f })), "the same names, the same bytes")
		out := Rename(in, func(f job.FileRef) job.FileRef { f.Filename += "~"; return f })
		if _, err := pyjson.Parse(in); err != nil {
			return
		}
		_, err := pyjson.Parse(out)
		require.NoError(t, err, "%q", out)
		before, after := Files(in), Files(out)
		require.Len(t, after, len(before))
		for i := range before {
			require.Equal(t, before[i].Ref.Filename+"~", after[i].Ref.Filename)
			require.Equal(t, before[i].Ref.Subfolder, after[i].Ref.Subfolder)
		}
	})
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for outputs, want := range map[string][]string{
		`{"9": {"text": ["a red fox"]}}`:                                                                    {"a red fox"},
		`{"9": {"tags": ["fox", " snow "]}, "8": {"text": "fox"}}`:                                          {"fox", "snow"},
		`{"9": {"images": [{"filename": "a.png", "subfolder": "", "type": "output"}], "animated": [true]}}`: nil,
		`{"9": {"text": [1.5, NaN]}, "8": {"text": [["x"]]}, "7": {"text": [""]}}`:                          nil,
		`{"9": {"picture": ["data:image/png;base64,AAAA"]}}`:                                                nil,
		`{"9": {"text": ["\u043b\u0438\u0441\u0430"]}}`:                                                     {"лиса"},
		``: nil, `[]`: nil,
	} {
		require.Equal(t, want, Texts([]byte(outputs), 20), outputs)
	}
	var many strings.Builder
	for i := range 50 {
		fmt.Fprintf(&many, `"%d",`, i)
	}
	require.Len(t, Texts([]byte(`{"9": {"text": [`+strings.TrimSuffix(many.String(), ",")+`]}}`), 20), 20)
}

// How long a run took is what its server says, if that makes sense.
func TestRan(t *testing.T) {
	t.Parallel()
	const start, end = `["execution_start", {"timestamp": 1000}]`, `["execution_success", {"timestamp": 61000}]`
	for messages, ran := range map[string]time.Duration{
		start + "," + end: time.Minute,
		start + `, ["execution_cached", {"timestamp": 2000}], ` + end: time.Minute,
		start + `, ["execution_error", {"timestamp": 3000}]`:          2 * time.Second,
		start: 0, end: 0, end + "," + `["execution_start", {"timestamp": 70000}]`: 0,
		start + `, ["execution_success", {"timestamp": "61000"}]`:             0,
		start + `, ["execution_success", {"timestamp": 9.2e18}]`:              0,
		start + `, ["execution_success", {"timestamp": 9223372036854775807}]`: 0,
		start + `, ["execution_success", []]`:                                 0,
		"":                                                                    0, "1, [2], [[], {}]": 0,
	} {
		e, _ := ParseEntry([]byte(`{"status": {"messages": [` + messages + `]}}`))
		require.Equal(t, ran, e.Ran(), messages)
	}
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Version{
		"0.3.64":                   {Minor: 3, Patch: 64},
		"v0.3.64":                  {Minor: 3, Patch: 64},
		"0.33.0":                   {Minor: 33},
		"1.2":                      {Major: 1, Minor: 2},
		"0.4.0rc1":                 {Minor: 4},
		"0.3.64+local":             {Minor: 3, Patch: 64},
		"v0.2.0-57-g1b2c3d":        {Minor: 2, Ahead: 57},
		"":                         {},
		"unknown":                  {},
		"1b2c3d4":                  {},
		"99999999999999999999.1.1": {},
		"0.3.":                     {Minor: 3},
		"7":                        {},
	} {
		want.Text = in
		require.Equal(t, want, ParseVersion(in), in)
	}
	require.False(t, ParseVersion("").Known())
	require.True(t, ParseVersion("0.0.1").Known())
}

func TestVersionFeatures(t *testing.T) {
	t.Parallel()
	at := func(s string) Version { return ParseVersion(s) }
	for _, c := range []struct {
		name          string
		has           func(Version) bool
		first, before string
	}{
		{"HonoursPromptID", Version.HonoursPromptID, "0.3.45", "0.3.44"},
		{"InterruptByID", Version.InterruptByID, "0.3.57", "0.3.56"},
		{"Targets", Version.Targets, "0.3.48", "0.3.47"},
		{"Jobs", Version.Jobs, "0.6.0", "0.5.9"},
		{"a git checkout", Version.HonoursPromptID, "v0.3.45-1-gabc", "v0.3.44-99-gabc"},
	} {
		require.True(t, c.has(at(c.first)), c.name)
		require.False(t, c.has(at(c.before)), c.name)
		require.False(t, c.has(at("")), "%s: nothing is taken for granted of an unknown version", c.name)
	}
	require.Negative(t, at("v0.3.64").Compare(at("v0.3.64-2-gabc")))
}
