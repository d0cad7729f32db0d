package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// The workers in examples/ work the queue of the built hub.
func TestExampleWorkers(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	f := newFleet(t, "embedded")
	f.startHub()
	token := must.Get(os.ReadFile(f.token("attic")))(t)
	start := func(name string, args ...string) {
		must.Get(f.Start(programs.Spec{
			Name: name, Path: python, Args: append([]string{"../examples/workers/" + name}, args...),
			Env: []string{"HUB=" + f.URL(""), "TOKEN=" + strings.TrimSpace(string(token))},
		}))(t)
	}
	start("comfyui_worker.py", f.simulate("attic"))
	start("plain_worker.py")
	f.idle(2)
	f.eventually(func() bool {
		var image, text map[string]any
		return f.get("/object_info/EmptyImage", &image) && f.get("/object_info/Uppercase", &text) && len(image)+len(text) == 2
	}, "the hub knows what they can run")
	f.succeeded([]string{f.submit(1, 1), f.submit(1, 2)})
	resp := must.Get(http.Post(f.URL("/submit"), "application/json", strings.NewReader(`{"workflow": {"1": {"class_type": "Uppercase", "inputs": {"text": "a fox"}}}}`)))(t)
	defer resp.Body.Close()
	var accepted struct{ ID string }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&accepted))
	id := accepted.ID
	require.True(t, f.get("/wait/"+id+"?timeout=60", &accepted))
	var history map[string]struct {
		Outputs map[string]struct{ Text []string }
	}
	require.True(t, f.get("/history/"+id, &history))
	require.Equal(t, []string{"A FOX"}, history[id].Outputs["1"].Text)
}
