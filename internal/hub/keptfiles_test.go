package hub

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// keptAgent is an agent that notes what hubs keep.
type keptAgent struct {
	mu     sync.Mutex
	status int
	asked  int
	files  []comfyui.KeptFile
}

func (a *keptAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.status != 0 {
		w.WriteHeader(a.status)
		return
	}
	var body comfyui.KeptFiles
	if json.NewDecoder(r.Body).Decode(&body) == nil && r.URL.Path == comfyui.KeptPath+"box" && len(body.Files) <= comfyui.MaxKept {
		a.files = append(a.files, body.Files...)
	}
}

func TestKeptFilesAreTold(t *testing.T) {
	t.Parallel()
	agent := &keptAgent{}
	server := httptest.NewServer(agent)
	defer server.Close()
	client, err := comfyui.NewClient(server.URL+comfyui.InstancePath+"box", comfyui.Options{ViaAgent: true})
	require.NoError(t, err)
	defer client.Close()
	wants := true
	here := client
	k := newKeptFiles(func(name string) bool { return wants && name == "box" }, func(string) *comfyui.Client { return here }, slog.New(slog.DiscardHandler))
	output := func(n int) files.Source {
		return files.Source{Instance: "box", Type: job.TypeOutput, Subfolder: "s", Filename: fmt.Sprint(n, ".png"), ETag: `"1-2"`}
	}
	temp, other, nameless := output(0), output(0), output(0)
	temp.Type, other.Instance, nameless.ETag = job.TypeTemp, "elsewhere", ""
	for _, src := range []files.Source{temp, other, nameless} {
		k.add(src, "hash")
	}
	require.Empty(t, k.untold)
	for n := range maxUntold + 5 {
		k.add(output(n), "hash")
	}
	require.Len(t, k.untold["box"], maxUntold)

	// What cannot be sent now is sent later.
	agent.status = http.StatusBadGateway
	k.tell()
	require.Equal(t, 1, agent.asked)
	require.Len(t, k.untold["box"], maxUntold)
	here = nil
	k.tell()
	require.Len(t, k.untold["box"], maxUntold)
	here, agent.status = client, 0
	k.close()
	require.Len(t, agent.files, maxUntold)
	require.Equal(t, comfyui.KeptFile{Subfolder: "s", Filename: "0.png", ETag: `"1-2"`, SHA256: "hash"}, agent.files[0])

	// An agent that deletes nothing is not asked again.
	agent.status, agent.asked = http.StatusNotFound, 0
	k = newKeptFiles(func(string) bool { return true }, func(string) *comfyui.Client { return client }, slog.New(slog.DiscardHandler))
	k.add(output(1), "hash")
	k.tell()
	k.close()
	require.Equal(t, 1, agent.asked)
	require.Empty(t, k.untold)
}

// A hub tells an agent of the files that it has copied, with hash and time as the file has them.
func TestOutputsAreConfirmed(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	require.NotNil(t, b.hub.kept)
	b.hub.kept.wants = func(string) bool { return true }
	agent := &keptAgent{}
	server := httptest.NewServer(agent)
	defer server.Close()
	client, err := comfyui.NewClient(server.URL+comfyui.InstancePath+"box", comfyui.Options{ViaAgent: true})
	require.NoError(t, err)
	defer client.Close()
	b.hub.kept.client = func(string) *comfyui.Client { return client }
	b.connected(1)
	status, answer := b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": "one"}`, work(0, 1, "none")))
	require.Equal(t, http.StatusOK, status, string(answer))
	eventually(t, func() bool {
		agent.mu.Lock()
		defer agent.mu.Unlock()
		return len(agent.files) == 1
	}, time.Minute, 10*time.Millisecond)
	require.Len(t, agent.files[0].SHA256, 64)
	require.Regexp(t, `^"[0-9a-f]+-[0-9a-f]+"$`, agent.files[0].ETag)
	require.NotEmpty(t, agent.files[0].Filename)
}

// A prompt that is answered from an instance's cache names the file of the run before. If that
// was deleted, the next run must make it again, and not name it again.
func TestCachedOutputThatWasDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		b := newBench(t, 0, func(b *bench) { b.instances = append(b.instances, newInstance(b.t, sim.Config{Dir: dir})) })
		b.connected(1)
		run := func(id string) {
			status, answer := b.post("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q}`, work(0, 7, "none"), id))
			require.Equal(t, http.StatusOK, status, string(answer))
			eventually(t, func() bool {
				_, text := b.get("/hub/jobs/" + id)
				return strings.Contains(string(text), `"status": "done"`) || strings.Contains(string(text), `"status": "failed"`)
			}, time.Minute, 10*time.Millisecond)
			_, text := b.get("/hub/jobs/" + id)
			require.Contains(t, string(text), `"status": "done"`)
		}
		run("first")
		outputs, err := filepath.Glob(filepath.Join(dir, "output", "*.png"))
		require.NoError(t, err)
		require.Len(t, outputs, 1)
		require.NoError(t, os.Remove(outputs[0]))
		run("second")
	})
}
