package split_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/split"
)

// The parts of a batch make the pictures that the whole batch makes, each at its place, and what
// ComfyUI has in the history of each part can be put together.
func TestSamePictures(t *testing.T) {
	t.Parallel()
	const batch = 5
	text := editAll(`"width": 512, "height": 512, "batch_size": 8`, fmt.Sprintf(`"width": 64, "height": 128, "batch_size": %d`, batch), `"steps": 20`, `"steps": 2`)
	plan, ok := split.Find([]byte(text), []string{"9"}, everyClass)
	require.True(t, ok)
	parts, err := plan.Parts(2)
	require.NoError(t, err)
	var pieces []string
	var outputs [][]byte
	for _, part := range parts {
		output, pictures := render(t, string(part.Graph), part.Count)
		pieces, outputs = append(pieces, pictures...), append(outputs, output)
	}
	_, all := render(t, text, batch)
	for n := range batch {
		require.Zero(t, strings.Compare(all[n], pieces[n]), "picture %d", n) // the bytes say nothing to a reader
		require.False(t, n > 0 && all[n] == all[n-1], "picture %d is that before it", n)
	}
	merged, err := split.Merge(parts, outputs)
	require.NoError(t, err)
	require.Equal(t, batch, strings.Count(string(merged), `"filename"`))
}

// render has a graph run by a server of its own, and returns its outputs and its pictures.
func render(t *testing.T, graph string, count int) (outputs []byte, pictures []string) {
	t.Helper()
	const id = "7b9b9b5e-0d6c-4c1e-9a53-3f6f0a1d2c11"
	server, err := sim.New(sim.Config{Version: "0.33.0", Dir: t.TempDir(), TimeScale: 0.01, Models: map[string][]string{"checkpoints": {"a.safetensors"}}})
	require.NoError(t, err)
	web := httptest.NewServer(server.Handler())
	defer web.Close()
	defer server.Close()
	read := func(resp *http.Response, err error) []byte {
		t.Helper()
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
		return body
	}
	read(http.Post(web.URL+"/prompt", "application/json", strings.NewReader(`{"prompt_id": "`+id+`", "prompt": `+graph+`}`)))
	var history map[string]struct {
		Outputs json.RawMessage `json:"outputs"`
	}
	require.Eventually(t, func() bool {
		return json.Unmarshal(read(http.Get(web.URL+"/history/"+id)), &history) == nil && len(history) == 1
	}, 20*time.Second, 5*time.Millisecond)
	for n := range count {
		pictures = append(pictures, string(read(http.Get(fmt.Sprintf("%s/view?filename=ComfyUI_%05d_.png&channel=rgb", web.URL, n+1)))))
	}
	return history[id].Outputs, pictures
}
