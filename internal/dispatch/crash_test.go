package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/rescue"
	"github.com/comfyhub/comfyhub/system/network/loopback"
)

// A job whose body cannot be read and that was to be cancelled ends as cancelled.
// It has no files and no graph by then.
func TestCancelOfAJobWithoutABody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		key := b.submit(picture)
		b.spoil("body", key, "")
		claimed := must(b.queue.Claim(t.Context(), queue.ClaimRequest{Key: key, Instance: "gpu", Hub: b.Hub, Upstream: uuid.NewString(), SID: "sid"}))
		must(b.queue.Cancel(t.Context(), key))
		r := newRun(b.Dispatcher, nil, claimed)
		b.launch(r, r.execute)
		b.reaches(key, job.Cancelled)
	})
}

// A panic in a run ends that run's job with an error. The hub goes on, and the
// instance is free for the next job.
func TestPanicEndsOneRun(t *testing.T) {
	inBubbles(t, map[string]func(*dispatching, *Config){
		"before the prompt is posted": func(_ *dispatching, c *Config) { c.Files = files.NewTransfer(&files.Store{}, nil, nil, nil) },
		"while it executes":           func(_ *dispatching, c *Config) { c.Shown = func(string, string, []byte) { panic("broken") } },
		"while an output is copied": func(b *dispatching, _ *Config) {
			b.fetch = func(context.Context, files.Source, http.Header) (*http.Response, error) { panic("broken") }
		},
	}, func(t *testing.T, broken func(*dispatching, *Config)) {
		b := newDispatching(t, 1, broken)
		for range 2 {
			key := b.submit(picture, func(s *queue.Submission) { s.Body.Inputs = []byte(`{"v": 1, "held": ["a"]}`) })
			require.Contains(t, b.failure(key), "The hub failed")
			b.leaves(key)
		}
		require.Contains(t, b.logged(), "rescue.Do", "the log has the stack")
		require.Equal(t, []string{"failed", "failed"}, b.ends())
	})
}

// The same holds for a panic in a goroutine that works beside the run.
func TestPanicBesideARun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		key := b.submit(endless)
		b.runs(key)
		b.followed(key).beside("testing", func() { panic("broken") })
		require.Contains(t, b.failure(key), "The hub failed")
		b.leaves(key)
		b.reaches(b.submit(picture), job.Done)
		require.Contains(t, b.logged(), "TestPanicBesideARun.func", "the log has the stack")
	})
}

// If a reader of an instance's messages panics, it loses its socket and opens a
// new one. The run on that socket ends.
func TestPanicOfAReader(t *testing.T) {
	s := newScripted(t)
	client := must(comfyui.NewClient(s.web.URL, comfyui.Options{Dial: loopback.Dial}))
	type row struct {
		up    int // which opening panics
		frame bool
		lost  bool // whether the socket is lost
	}
	sideBySide(t, map[string]row{
		"at a frame": {frame: true, lost: true},
		"at opening": {up: 1},
	}, func(t *testing.T, tt row) {
		ctx, stop := context.WithTimeout(t.Context(), deadline)
		defer stop()
		ups := 0
		var lost error
		f := &eventSocket{
			alive: func() {}, patience: func() time.Duration { return time.Minute },
			client: client, sid: uuid.NewString, log: slog.New(slog.DiscardHandler),
			up: func(context.Context) error {
				ups++
				switch ups {
				case tt.up:
					panic("broken")
				case 2:
					stop()
				}
				return nil
			},
			down: func(err error) { lost = err },
			frame: func(comfyui.Frame) {
				if tt.frame {
					panic("broken")
				}
			},
		}
		f.run(ctx)
		require.Equal(t, 2, ups, "it is opened again")
		require.Equal(t, tt.lost, errors.Is(lost, rescue.ErrPanic))
	})
	b := newDispatching(t, 1)
	key := b.submit(endless)
	b.runs(key)
	b.connection(b.instances[0].name).deliver(runEvent{kind: socketDown, err: rescue.ErrPanic})
	require.Contains(t, b.failure(key), "The hub failed")
}
