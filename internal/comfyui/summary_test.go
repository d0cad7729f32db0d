package comfyui

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
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
			want, err := pyjson.Parse([]byte(c.want))
			require.NoError(t, err)
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
			_, err := pyjson.Parse(stored)
			require.NoError(t, err)
		}
	})
}
