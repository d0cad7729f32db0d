package comfyui

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

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
		w, err := pyjson.Parse([]byte(want))
		require.NoError(t, err)
		ShapeJob(v.(*pyjson.Object))
		require.Equal(t, string(pyjson.Marshal(w)), string(pyjson.Marshal(v)), in)
	}
}
