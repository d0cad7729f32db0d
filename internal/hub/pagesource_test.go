package hub

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// The page does not come before the hub knows what its instance can run: it would open
// without nodes.
func TestPageComesWithItsNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		known := make(chan struct{})
		front := simtest.Front(t, newInstance(t, sim.Config{}).url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
			switch {
			case r.URL.Path == "/":
				_, _ = io.WriteString(w, "<!doctype html>")
				return
			case strings.HasSuffix(r.URL.Path, "/object_info"):
				select {
				case <-known:
				case <-r.Context().Done():
				}
			}
			rest.ServeHTTP(w, r)
		})
		b := newBench(t, 0)
		b.settings.Instances = []string{front.URL}
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		name := must(fleet.StaticName(front.URL))(t)
		eventually(t, func() bool { return b.hub.clients.ByName(name) != nil }, time.Minute, time.Millisecond)
		answered(b.get("/"))(t, http.StatusServiceUnavailable)
		close(known)
		b.connected(1)
		require.Equal(t, "<!doctype html>", b.text("/"))
		require.Contains(t, b.text("/object_info"), "EmptyImage")
	})
}

// Operators, and everybody if nobody logs in, see where the page of ComfyUI comes from; others do
// not, because it is the name of an instance or a folder.
func TestStatsTellOfThePage(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, func(b *bench) { b.settings.Operators = []string{"root"} })
	name := must(fleet.StaticName(b.instances[0].url()))(t)
	comes := func(v *visitor, want string) {
		t.Helper()
		eventually(t, func() bool {
			_, body := v.send("GET", "/hub/stats", "")
			return strings.Contains(string(body), `"web_ui": `+want)
		}, time.Minute, 5*time.Millisecond)
	}
	comes(b.script(), `{"from": "instance", "name": "`+name+`"}`)
	root := b.login("root")
	comes(root, `{"from": "instance", "name": "`+name+`"}`)
	_, body := b.login("ada").send("GET", "/hub/stats", "")
	require.NotContains(t, string(body), "web_ui")

	settings := *b.hub.Settings()
	settings.Primary = []string{"gpu1", "gpu2"}
	require.NoError(t, b.hub.Start(t.Context(), settings))
	comes(root, `{"from": "nowhere", "name": "gpu1, gpu2"}`)
	settings.Frontend = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(settings.Frontend, "index.html"), []byte("a page"), 0o600))
	require.NoError(t, b.hub.Start(t.Context(), settings))
	comes(root, `{"from": "folder", "name": "`+settings.Frontend+`"}`)
}
