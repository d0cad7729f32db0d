package hub

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// The web interface shows the first picture that it offers, which may exist only
// on an instance.
func TestInputsOfInstancesAreShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) {
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "input"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "input", "its own.png"), []byte("its own"), 0o644))
			b.instances = append(b.instances, newInstance(t, sim.Config{Dir: dir}))
		})
		require.Contains(t, b.text("/object_info/LoadImage"), "its own.png")
		require.Equal(t, "its own", b.text("/view?type=input&subfolder=&filename=its%20own.png"))
		require.Equal(t, "its own", b.text("/api/view?filename=its%20own.png%20%5Binput%5D"))
		for _, query := range []string{"type=input&filename=other.png", "type=output&filename=its%20own.png"} {
			status, _ := b.get("/view?" + query)
			require.Equal(t, http.StatusNotFound, status, query)
		}
		own := job.FileRef{Type: job.TypeInput, Filename: "its own.png"}
		_, found := b.hub.ofInstance(t.Context(), job.DefaultTenant, own)
		require.True(t, found)
		_, found = b.hub.ofInstance(t.Context(), "somebody", own)
		require.False(t, found, "it may be the upload of another tenant")
	})
}
