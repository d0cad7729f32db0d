package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// miss makes the hub need the instance's record of a run: it has missed a message.
func (b *dispatching) miss(key string) {
	b.runs(key)
	b.Runs.get(key).mail.put(runEvent{kind: socketDown, err: io.EOF})
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

// A step that fails for a reason nobody has thought of is not repeated for ever, and the log says
// so.
func TestUnknownErrorIsNotRepeatedForEver(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		log := &logtest.Log{}
		r := &run{log: slog.New(slog.NewTextHandler(log, nil))}
		tries := 0
		broken := errors.New("WRONGTYPE")
		err := r.retry(t.Context(), "finish", func(context.Context) error { tries++; return broken })
		require.ErrorIs(t, err, broken)
		require.Equal(t, 1+maxUnknown, tries)
		require.Contains(t, log.String(), "will try again")

		tries = 0
		require.NoError(t, r.retry(t.Context(), "finish", func(context.Context) error {
			if tries++; tries < 100 {
				return queue.ErrUnavailable
			}
			return nil
		}), "Redis is waited for")
		for _, answer := range []error{queue.ErrStale, queue.ErrNotQueued, queue.ErrTaken, queue.ErrCapped, queue.ErrCancelled, queue.ErrExhausted} {
			tries = 0
			require.ErrorIs(t, r.retry(t.Context(), "claim", func(context.Context) error { tries++; return answer }), answer)
			require.Equal(t, 1, tries, "%v is an answer, which stays the same", answer)
		}
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

// What piles up for a run that is waiting for Redis is bounded: previews and progress go; what
// begins and ends things stays, in order.
func TestMailboxIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("much text, and one goroutine")
	}
	t.Parallel()
	text := func(kind, more string) runEvent {
		return runEvent{kind: frameArrived, frame: comfyui.Frame{Data: fmt.Appendf(nil, `{"type": %q, "data": {"prompt_id": "p", "x": %q}}`, kind, more)}}
	}
	fill := func(m *mailbox, e runEvent) {
		for range 3 * maxMail / len(e.frame.Data) {
			m.put(e)
			require.LessOrEqual(t, m.size, maxMail+len(e.frame.Data))
		}
	}
	kinds := func(m *mailbox) (kinds []string, gap bool) {
		for {
			e := must(m.next(t.Context(), time.Nanosecond))
			if e.kind == silence && len(m.events) == 0 {
				require.Zero(t, m.size)
				return kinds, gap
			}
			gap = gap || e.gap
			msg, _ := comfyui.ParseMessage(e.frame.Data)
			switch {
			case e.kind == cancelAsked:
				kinds = append(kinds, "cancel")
			case !e.frame.Binary && (len(kinds) == 0 || kinds[len(kinds)-1] != msg.Type):
				kinds = append(kinds, msg.Type)
			}
		}
	}
	long := strings.Repeat("x", 100_000)
	preview := runEvent{kind: frameArrived, frame: comfyui.Frame{Binary: true, Data: []byte(long)}}

	m := newMailbox()
	m.put(text("execution_start", ""))
	fill(m, text("progress_state", long))
	m.put(text("executed", ""))
	m.put(runEvent{kind: cancelAsked})
	fill(m, text("progress", long))
	m.put(text("execution_success", ""))
	got, gap := kinds(m)
	require.Equal(t, []string{"execution_start", "executed", "cancel", "progress", "execution_success"}, got)
	require.False(t, gap, "nothing was lost that a client misses")

	m.put(text("execution_start", ""))
	fill(m, preview)
	m.put(text("executed", ""))
	got, gap = kinds(m)
	require.Equal(t, []string{"execution_start", "executed"}, got)
	require.False(t, gap)

	m.put(text("execution_start", ""))
	m.put(text("of.a.node", long))
	fill(m, text("of.another.node", long))
	m.put(text("execution_error", ""))
	got, gap = kinds(m)
	require.Equal(t, []string{"execution_start", "of.another.node", "execution_error"}, got)
	require.True(t, gap)

	executed := text("executed", long)
	for range 3 * (2 * maxMail / len(long)) {
		m.put(executed) // all of these stay
	}
	require.Len(t, m.events, 3*(2*maxMail/len(long)))
}

// A picture that exists nowhere else is not dropped for being large, nor if there are several; an
// endless number of them is.
func TestMailboxKeepsResults(t *testing.T) {
	t.Parallel()
	executing := func(node string) runEvent {
		return runEvent{kind: frameArrived, frame: comfyui.Frame{Data: fmt.Appendf(nil, `{"type": "executing", "data": {"node": %q, "prompt_id": "p"}}`, node)}}
	}
	picture := runEvent{kind: frameArrived, frame: comfyui.Frame{Binary: true, Data: make([]byte, maxMail+1)}}
	pictures := func(m *mailbox) (n int, gap bool) {
		for len(m.events) > 0 {
			e := must(m.next(t.Context(), time.Nanosecond))
			if gap = gap || e.gap; e.frame.Binary {
				n++
			}
		}
		return n, gap
	}
	m := newMailbox()
	m.setResults([]string{"9"})
	m.put(picture)
	n, gap := pictures(m)
	require.Equal(t, 1, n, "nothing else waits")
	require.False(t, gap)

	m.put(executing("3"))
	m.put(picture)
	m.put(picture)
	m.put(executing("9"))
	m.put(picture)
	m.put(picture)
	n, gap = pictures(m)
	require.Equal(t, 2, n, "both results, and no preview")
	require.False(t, gap)

	for range 3 * maxResults / maxMail {
		m.put(picture)
		require.LessOrEqual(t, m.size, 2*maxResults)
	}
	_, gap = pictures(m)
	require.True(t, gap, "some were dropped")
}
