package dispatch

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// withInput stores an input and gives it to a job.
func (b *dispatching) withInput(data string) func(*queue.Submission) {
	ref := job.FileRef{Type: job.TypeInput, Filename: "in.png"}
	must(b.store.Upload(b.t.Context(), job.DefaultTenant, ref, true, strings.NewReader(data)))
	pins := must(b.store.Pin(b.t.Context(), job.DefaultTenant, []job.FileRef{ref}))
	encoded := must(pins.Encode())
	in := must(json.Marshal(files.Inputs{Version: 1, Pins: encoded}))
	return func(s *queue.Submission) { s.Body.Inputs = in }
}

// sick waits until the dispatcher gives out no jobs, or does so again.
func (b *dispatching) sick(sick bool) {
	eventually(b.t, func() bool { return (b.Openings.paused() != nil) == sick }, deadline, time.Millisecond)
}

// Jobs whose inputs cannot be read because the storage is away wait for it, whether it cannot be
// reached, has lost its folder, or shows the empty folder below a mount. They are not claimed again
// and again meanwhile, and run soon after it is back.
func TestStorageIsAway(t *testing.T) {
	inBubbles(t, map[string]func(path string) error{
		// Nobody can read a link to itself, not even root.
		"it cannot be read": func(path string) error { return os.Symlink(path, path) },
		"it is gone":        func(string) error { return nil },
		"it is unmounted":   func(path string) error { return os.Mkdir(path, 0o700) },
	}, func(t *testing.T, replace func(path string) error) {
		b := newDispatching(t, 0)
		input := b.withInput("the input of many")
		var waiting []string
		for range 12 {
			waiting = append(waiting, b.submit(picture, input))
		}
		require.NoError(t, os.Rename(b.storage, b.storage+".away"))
		require.NoError(t, replace(b.storage))
		b.add(newScripted(t))
		b.add(newScripted(t))
		b.sick(true)
		require.Equal(t, "the hub's storage takes no files now; jobs wait until it does", b.Waiting.Explain(catalog.Requirements{}, "anybody"))
		require.NoError(t, os.RemoveAll(b.storage))
		require.NoError(t, os.Rename(b.storage+".away", b.storage))
		for _, key := range waiting {
			require.LessOrEqual(t, b.reaches(key, job.Done).Attempts, 1, "the job was not to blame")
		}
		require.Equal(t, len(waiting), b.instances[0].Started()+b.instances[1].Started(), "each ran once")
	})
}

// Inputs that cannot be read in an otherwise working storage hold up only the jobs that need them.
func TestInputsCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		input := b.withInput("the input of many")
		var waiting []string
		for range 12 {
			waiting = append(waiting, b.submit(picture, input))
		}
		content := filepath.Join(b.storage, "content")
		require.NoError(t, os.Rename(content, content+".away"))
		require.NoError(t, os.Symlink(content, content))
		b.add(newScripted(t))
		b.add(newScripted(t))
		all := func(are func(job.Job) bool) {
			left := slices.Clone(waiting)
			eventually(t, func() bool {
				left = slices.DeleteFunc(left, func(key string) bool { return are(b.Job(key)) })
				return len(left) == 0
			}, deadline, 50*time.Millisecond)
		}
		all(func(j job.Job) bool { return len(j.Lost) > 0 }) // each is tried, and none hides those behind it
		for _, key := range waiting {
			require.Contains(t, b.Job(key).Lost[0], ": the hub's storage cannot be read")
		}
		b.reaches(b.submit(picture), job.Done)
		require.NoError(t, os.Remove(content))
		require.NoError(t, os.Rename(content+".away", content))
		all(func(j job.Job) bool { return j.State == job.Done })
		for _, key := range waiting {
			require.LessOrEqual(t, b.Job(key).Attempts, 1, "the job was not to blame")
		}
	})
}

// A job whose input is gone for good ends.
func TestInputIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		key := b.submit(picture, func(s *queue.Submission) {
			b.withInput("another")(s)
			require.NoError(t, os.RemoveAll(filepath.Join(b.storage, "content")))
		})
		require.Contains(t, b.failure(key), "an input file is gone")
		require.Equal(t, 1, b.Job(key).Attempts)
	})
}

// A finished run whose instance does not come back runs again, after a while.
func TestInstanceIsGoneWithItsOutputs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1, func(b *dispatching, c *Config) {
			copies := files.NewCollector(b.store, b.fetch, files.CollectorOptions{Patience: files.Patience{Contact: 300 * time.Millisecond}})
			t.Cleanup(copies.Close)
			c.Files = files.NewTransfer(b.store, copies, nil, c.Logger)
		})
		b.instances[0].on("GET /view", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusBadGateway)
		})
		require.Contains(t, b.lost(b.submit(picture)), "an output file cannot be copied")
	})
}
