package hub_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// While the disk of the embedded queue is full, prompts are refused with 503 and told
// when to come back. What was accepted before is still there, also after a restart, and
// all of it runs when there is space again.
func TestDiskOfTheEmbeddedQueueIsFull(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
			t.Skip("only root can mount a small disk:", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		b := newBench(t, 1, func(b *bench) { b.id.Data = dir })
		running := b.submit(endless(1), "ann")
		accepted := []string{running}
		for n := range 5 {
			accepted = append(accepted, b.submit(picture(n), "ann"))
		}
		fill := func() {
			f := must(os.Create(filepath.Join(dir, "filler")))(t)
			defer f.Close()
			for size := 64 << 10; size > 0; { // to the last byte
				if _, err := f.Write(make([]byte, size)); err != nil {
					size /= 2
				}
			}
		}
		fill()
		refuse := func() {
			body := `{"prompt": ` + picture(9) + `, "extra_data": {"filler": "` + strings.Repeat("x", 1<<10) + `"}}`
			eventually(t, func() bool { // a block of the file may have had some room
				resp, err := http.Post(b.web.URL+"/prompt", "application/json", strings.NewReader(body))
				require.NoError(t, err)
				_, answer := read(t, resp)
				if resp.StatusCode == http.StatusOK {
					accepted = append(accepted, idOf(t, answer))
					return false
				}
				require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, string(answer))
				require.NotEmpty(t, resp.Header.Get("Retry-After"))
				require.Contains(t, string(answer), `"queue_unavailable"`)
				return true
			}, time.Minute, time.Millisecond)
		}
		refuse()
		require.NoError(t, os.Remove(filepath.Join(dir, "filler")))
		eventually(t, func() bool {
			status, answer := b.post("/prompt", `{"prompt": `+picture(7)+`, "client_id": "ann"}`)
			if status == http.StatusOK {
				accepted = append(accepted, idOf(t, answer))
			}
			return status == http.StatusOK
		}, time.Minute, 5*time.Millisecond)

		fill()
		refuse()
		_ = b.hub.Close(t.Context()) // it cannot write the last of its journal
		require.NoError(t, os.Remove(filepath.Join(dir, "filler")))
		b.start()
		b.connected(1)
		b.posts("/interrupt", `{"prompt_id": "`+running+`"}`)
		for _, id := range accepted[1:] {
			require.Equal(t, "success", b.finished(id).Status.Text)
		}
	})
}
