package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// The body of a job is read once, and what it needs is known until it has ended. What cannot be
// read may be needed, so nothing is known then, and it is tried again.
func TestPinnedBlobsAreReadOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, err := queue.New(redistest.Embedded(t), queue.Options{})
	require.NoError(t, err)
	waits := func(id, blob string) string {
		body := job.Body{Prompt: []byte("{}")}
		if blob != "" {
			pins, err := files.Pins{{Ref: job.FileRef{Filename: id, Type: job.TypeInput}, Key: blob}}.Encode()
			require.NoError(t, err)
			body.Inputs, err = json.Marshal(files.Inputs{Version: 1, Pins: pins})
			require.NoError(t, err)
		}
		_, err := q.Enqueue(ctx, queue.Submission{Key: id, ID: id, Requester: job.Requester{Tenant: "ann", Caller: "ann"}, Class: "class", BodyHash: id, Body: body})
		require.NoError(t, err)
		return id
	}
	var read []string
	var broken error
	pinned := PinnedBlobs{Turn: semaphore.NewWeighted(1), Live: q.LiveKeys, Each: func(ctx context.Context, keys []string, use func(queue.StoredBody) error) error {
		read = append(read, keys...)
		if broken != nil {
			return broken
		}
		return q.EachBody(ctx, keys, use)
	}}
	look := func(now []string, want ...string) {
		t.Helper()
		read = nil
		got, err := pinned.All(ctx)
		require.NoError(t, err)
		all := map[string]bool{}
		for _, blob := range want {
			all[blob] = true
		}
		require.Equal(t, all, got)
		require.ElementsMatch(t, now, read)
	}
	cancel := func(key string) {
		_, err := q.CancelWaiting(ctx, []string{key})
		require.NoError(t, err)
	}
	look(nil)
	one, two, none := waits("one", "blob 1"), waits("two", "blob 2"), waits("none", "")
	broken = context.DeadlineExceeded
	_, err = pinned.All(ctx)
	require.ErrorIs(t, err, broken)
	broken = nil
	look([]string{one, two, none}, "blob 1", "blob 2")
	look(nil, "blob 1", "blob 2")
	three := waits("three", "blob 2")
	look([]string{three}, "blob 1", "blob 2")
	cancel(one)
	look(nil, "blob 2")
	cancel(three)
	look(nil, "blob 2")
	cancel(two)
	look(nil)
	require.Len(t, pinned.Jobs, 1, "of jobs that have ended nothing is kept")
}

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
