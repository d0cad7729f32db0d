package hub

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
)

// A hub whose storage is unmounted says so everywhere, gives out no jobs, tells nobody
// that a file is gone, and goes on by itself when the storage is back.
func TestHubWithASickStorage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log := &logtest.Log{}
		b := newBench(t, 1, func(b *bench) { b.log = log })
		require.Equal(t, "success", b.finished(b.submit(picture(1), "ann")).Status.Text)
		require.NoError(t, b.hub.Ready(t.Context()))
		require.InDelta(t, 1, b.metric("comfyhub_storage_up"), 0)

		mount := filepath.Join(b.id.Data, "files")
		require.NoError(t, os.Rename(mount, mount+".away"))
		require.NoError(t, os.Mkdir(mount, 0o700))
		status, body := b.get("/view?filename=ComfyUI_00001_.png")
		// The output may still be on its instance, but the hub does not say that it is gone.
		require.NotEqual(t, http.StatusNotFound, status, string(body))
		eventually(t, func() bool { return b.hub.Ready(t.Context()) != nil }, time.Minute, 5*time.Millisecond)
		require.ErrorIs(t, b.hub.Ready(t.Context()), files.ErrStorage)
		require.ErrorContains(t, b.hub.Ready(t.Context()), "is it mounted?")
		require.InDelta(t, 0, b.metric("comfyhub_storage_up"), 0)
		eventually(t, func() bool { return strings.Contains(log.String(), "no jobs are given out until it can") }, time.Minute, 5*time.Millisecond)
		id := b.submit(picture(2), "ann")
		status, body = b.post("/hub/explain", `{"prompt_id": "`+id+`"}`)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, string(body), "storage takes no files now")
		status, _ = b.upload("a.png", "", "bytes")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Equal(t, 1, started(b))

		require.NoError(t, os.RemoveAll(mount))
		require.NoError(t, os.Rename(mount+".away", mount))
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.NoError(t, b.hub.Ready(t.Context()))
		eventually(t, func() bool { return strings.Contains(log.String(), "the storage works again") }, time.Minute, 5*time.Millisecond)
		status, _ = b.get("/view?filename=ComfyUI_00001_.png")
		require.Equal(t, http.StatusOK, status)
	})
}
