package dispatch

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
)

// miss makes the hub need the instance's record of a run: it has missed a message.
func (b *dispatching) miss(key string) {
	b.runs(key)
	b.Runs.Get(key).Holder().Tell(instance.Event{Kind: instance.Down, Err: io.EOF})
}

// The hub waits for a record that comes late: the work is done.
func TestRecordIsLate(t *testing.T) {
	type row struct {
		late    time.Duration // each answer
		status  int
		answers int64 // how many of these come before the record
	}
	inBubbles(t, map[string]row{
		"each answer takes long":   {20 * time.Second, 0, 0},
		"it is not there yet":      {0, http.StatusOK, 20},
		"the server is overloaded": {0, http.StatusServiceUnavailable, 60},
	}, func(t *testing.T, c row) {
		b := newDispatching(t, 1)
		var asked atomic.Int64
		b.instances[0].on("GET /history/", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			<-time.After(c.late)
			if asked.Add(1) > c.answers {
				next.ServeHTTP(w, r)
				return
			}
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte("{}"))
		})
		key := b.submit(working)
		b.miss(key)
		require.Empty(t, b.reaches(key, job.Done).Lost)
		require.Equal(t, 1, b.instances[0].Started(), "it ran once")
	})
}

// A client that cancels need not wait for an instance that hangs: for the record of its run, for the names of
// its outputs, or for the outputs.
func TestCancelWhileTheInstanceHangs(t *testing.T) {
	type row struct {
		graph string
		hangs []string // requests
		late  bool     // not before the run has ended
	}
	inBubbles(t, map[string]row{
		"its record is late":        {graph: working, hangs: []string{"GET /history/"}},
		"its outputs are named":     {graph: working, hangs: []string{"GET /view", "HEAD /view"}},
		"they are named at the end": {graph: working, hangs: []string{"GET /view", "HEAD /view"}, late: true},
		"its outputs are copied":    {graph: picture, hangs: []string{"GET /view"}},
	}, func(t *testing.T, c row) {
		b := newDispatching(t, 1)
		var hangs atomic.Bool
		hangs.Store(!c.late)
		b.instances[0].on("GET /history/", func(w http.ResponseWriter, r *http.Request, answer http.Handler) {
			hangs.Store(true)
			answer.ServeHTTP(w, r)
		})
		asked := make(chan struct{}, 100)
		for _, request := range c.hangs {
			b.instances[0].on(request, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				if !hangs.Load() {
					w.WriteHeader(http.StatusBadGateway)
					return
				}
				asked <- struct{}{}
				<-r.Context().Done()
			})
		}
		key := b.submit(c.graph)
		if c.hangs[0] == "GET /history/" {
			b.miss(key)
		}
		<-asked
		began := time.Now()
		must(b.Queue.Cancel(t.Context(), key))
		b.cancels(key)
		require.Less(t, time.Since(began), 5*time.Second)
		b.leaves(key)
	})
}

// A record larger than any sane one is not read, and costs neither memory nor the result.
func TestRecordIsTooLarge(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		var sent atomic.Int64
		piece := []byte(strings.Repeat("x", 1<<20))
		b.instances[0].on("GET /history/", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			_, _ = w.Write([]byte(`{"`))
			for range 300 {
				n, err := w.Write(piece)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		})
		key := b.submit(picture)
		require.Empty(t, b.reaches(key, job.Done).Lost)
		require.Contains(t, string(b.entry(key).Outputs), "ComfyUI_00001_.png")
		require.Less(t, sent.Load(), int64(100<<20), "once, and not to its end")
	})
}

// The next prompt runs on an instance before the files of the last one have arrived, however long
// they take.
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
				require.Equal(t, job.Running, b.Job(first).State, "its end waits for its files")
				require.Empty(t, b.ends())
				close(home)
				b.reaches(first, job.Done)
				require.Equal(t, job.Running, b.Job(second).State)
				b.cancels(second)
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
