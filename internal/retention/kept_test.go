package retention

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
)

// keeper is an agent that notes what hubs keep.
type keeper struct {
	mu     sync.Mutex
	status int
	asked  int
	files  []comfyui.KeptFile
}

func (a *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	agent := &keeper{}
	server := httptest.NewServer(agent)
	defer server.Close()
	client, err := comfyui.NewClient(server.URL+comfyui.InstancePath+"box", comfyui.Options{ViaAgent: true})
	require.NoError(t, err)
	defer client.Close()
	wants := true
	here := client
	k := NewKeptFiles(func(name string) bool { return wants && name == "box" }, func(string) *comfyui.Client { return here }, slog.New(slog.DiscardHandler))
	output := func(n int) files.Source {
		return files.Source{Instance: "box", Type: job.TypeOutput, Subfolder: "s", Filename: fmt.Sprint(n, ".png"), ETag: `"1-2"`}
	}
	temp, other, nameless := output(0), output(0), output(0)
	temp.Type, other.Instance, nameless.ETag = job.TypeTemp, "elsewhere", ""
	for _, src := range []files.Source{temp, other, nameless} {
		k.Add(src, "hash")
	}
	require.Empty(t, k.untold)
	for n := range maxUntold + 5 {
		k.Add(output(n), "hash")
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
	k.Close()
	require.Len(t, agent.files, maxUntold)
	require.Equal(t, comfyui.KeptFile{Subfolder: "s", Filename: "0.png", ETag: `"1-2"`, SHA256: "hash"}, agent.files[0])

	// An agent that deletes nothing is not asked again.
	agent.status, agent.asked = http.StatusNotFound, 0
	k = NewKeptFiles(func(string) bool { return true }, func(string) *comfyui.Client { return client }, slog.New(slog.DiscardHandler))
	k.Add(output(1), "hash")
	k.tell()
	k.Close()
	require.Equal(t, 1, agent.asked)
	require.Empty(t, k.untold)
}
