package sdapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func TestTasks(t *testing.T) {
	t.Parallel()
	for _, task := range []string{"", "task(a-b)", strings.Repeat("x", maxTask)} {
		id, err := idOf(task)
		require.NoError(t, err)
		require.LessOrEqual(t, len(id), catalog.MaxID)
		require.Equal(t, task, taskOf(id))
	}
	_, err := idOf(strings.Repeat("x", maxTask+1))
	require.Error(t, err)
}

// Whatever a client sends, it is a graph or an error in FastAPI's or A1111's form.
func FuzzReadRequest(f *testing.F) {
	for _, seed := range []string{
		`{"prompt": "a <lora:ink:1>", "override_settings": {"sd_model_checkpoint": "a"}, "send_images": false, "force_task_id": "task(1)"}`,
		`{"override_settings": null, "force_task_id": null, "init_images": [null, 5, {"a": []}]}`,
		`{"override_settings": {"sd_model_checkpoint": 5}}`, `{"force_task_id": []}`, `[]`, `null`, `"x"`, `{"comfyhub_input": -1}`,
		`{"image": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptV"}`,
	} {
		f.Add([]byte(seed), []byte(`{"sd_model_checkpoint": "b"}`))
	}
	f.Fuzz(func(t *testing.T, body, kept []byte) {
		v, err := pyjson.Parse(body)
		if err != nil {
			return
		}
		options, _ := pyjson.Parse(kept)
		own, _ := options.(*pyjson.Object)
		for _, path := range a1111.Paths() {
			asked, graph, err := readRequest(a1111.ClassOf(path), pyjson.Clone(v), own)
			var odd *invalid
			switch {
			case err == nil:
				require.NotNil(t, graph)
				require.True(t, strings.HasPrefix(asked.id, idPrefix))
			case !errors.As(err, &odd):
				require.ErrorIs(t, err, a1111.ErrRequest)
			}
		}
	})
}

// A server's error may have any length, and is in the answer twice.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"short", strings.Repeat("a", maxText), strings.Repeat("ä", 1<<20)} {
		e := exception(text, text)
		require.LessOrEqual(t, len(pyjson.Marshal(e)), 3*(2*maxText+1000))
		require.Equal(t, len(text) <= maxText, e.String("errors") == text)
		require.True(t, strings.HasPrefix(text, strings.TrimSuffix(e.String("detail"), "…")))
	}
}
