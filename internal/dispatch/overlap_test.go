package dispatch

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
)

// The next prompt runs on an instance before the files of the last one are home,
// however long they take on their way.
func TestNextPromptOverlapsTheEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		files bool
	}{{"its files come slowly", true}, {"its record comes slowly", false}} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				home := make(chan struct{})
				wait := func(ctx context.Context) {
					select {
					case <-home:
					case <-ctx.Done():
					}
				}
				b := newDispatching(t, 1, func(b *dispatching, _ *Config) {
					fetch := b.fetch
					if c.files {
						b.fetch = func(ctx context.Context, src files.Source, header http.Header) (*http.Response, error) {
							resp, err := fetch(ctx, src, header)
							if err == nil {
								resp.Body = &slowBody{ReadCloser: resp.Body, wait: func() { wait(ctx) }}
							}
							return resp, err
						}
					}
				})
				if !c.files {
					b.instances[0].on("GET /history/", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
						wait(r.Context())
						next.ServeHTTP(w, r)
					})
				}
				first, second := b.submit(picture), b.submit(endless)
				b.runs(second)
				require.Equal(t, job.Running, b.job(first).State, "its end waits for its files")
				require.Empty(t, b.ends())
				close(home)
				b.reaches(first, job.Done)
				require.Equal(t, job.Running, b.job(second).State)
				b.CancelRun(second)
				b.reaches(second, job.Cancelled)
			})
		})
	}
}

// slowBody waits before each read.
type slowBody struct {
	io.ReadCloser
	wait func()
}

func (b *slowBody) Read(p []byte) (int, error) {
	b.wait()
	return b.ReadCloser.Read(p)
}

// A hub that has lost a run leaves the instance's record of it to the one that has it.
func TestLostRunKeepsItsRecord(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		key := b.submit(working)
		b.runs(key)
		run := b.job(key).Run
		must(b.queue.Adopt(t.Context(), run, "other/1"))
		b.leaves(key)
		// On a slow machine the renewal of the lease finds out first, and the run goes on.
		eventually(t, func() bool { return b.instances[0].Finished() == 1 }, deadline, time.Millisecond)
		_, found, err := b.connection(run.Instance).client.History(t.Context(), run.Upstream)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, job.Running, b.job(key).State)
	})
}
