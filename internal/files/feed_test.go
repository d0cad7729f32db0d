package files

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// stuck is an instance on a line that carries small answers, but little or nothing of a file.
type stuck struct {
	*instance
	every time.Duration // between two bytes that it takes; 0 for none at all
	views int
	// endless makes it send a file without end.
	endless bool
}

func (s *stuck) Stat(ctx context.Context, ref job.FileRef) (comfyui.FileInfo, bool, error) {
	info, found, err := s.instance.Stat(ctx, ref)
	if s.endless {
		info.Size = -1
	}
	return info, found, err
}

func (s *stuck) View(ctx context.Context, ref job.FileRef, header http.Header) (*http.Response, error) {
	s.views++
	resp, err := s.instance.View(ctx, ref, header)
	if err != nil {
		return nil, err
	}
	resp.ContentLength = -1
	resp.Body = io.NopCloser(io.MultiReader(io.LimitReader(resp.Body, 2), readerFunc(func(p []byte) (int, error) {
		if s.endless {
			return len(p), nil
		}
		<-ctx.Done()
		return 0, ctx.Err()
	})))
	return resp, nil
}

func (s *stuck) take(ctx context.Context, body io.Reader) error {
	for s.every > 0 {
		if _, err := body.Read(make([]byte, 1)); err != nil {
			return err
		}
		select {
		case <-time.After(s.every):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *stuck) Upload(ctx context.Context, ref job.FileRef, overwrite bool, body io.Reader, size int64) (job.FileRef, error) {
	if s.endless {
		return s.instance.Upload(ctx, ref, overwrite, body, size)
	}
	return job.FileRef{}, s.take(ctx, body)
}

func (s *stuck) Put(ctx context.Context, _, _ string, body io.Reader, _ int64) error {
	return s.take(ctx, body)
}

// An instance that stops in the middle of an input does not hold the prompt.
func TestPushThatStalls(t *testing.T) {
	const content = "one and a half"
	type row struct {
		stuck *stuck
		there string // what the instance has under the name
		held  bool
	}
	beside.Cases(t, map[string]row{
		"it takes no upload":           {&stuck{}, "", false},
		"it takes a byte in a while":   {&stuck{every: 20 * time.Second}, "", false},
		"it does not send its own":     {&stuck{}, content, false},
		"it takes no held picture":     {&stuck{}, "", true},
		"it takes little of a picture": {&stuck{every: 20 * time.Second}, "", true},
	}, func(t *testing.T, c row) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore(t, redistest.Embedded(t))
			c.stuck.instance = newInstance()
			if c.there != "" {
				c.stuck.put(input("a.png"), c.there)
			}
			copies := newCollector(t, s, c.stuck.instance)
			transfer := NewTransfer(s, copies, NewHeld(s.storage), slog.New(slog.DiscardHandler))
			var in Inputs
			if c.held {
				require.NoError(t, transfer.held.Put(t.Context(), tenant, "id", strings.NewReader(content)))
				in.Held = []string{"id"}
			} else {
				s.mustUpload(t, input("a.png"), content)
				in.Pins = must(must(s.Pin(t.Context(), tenant, []job.FileRef{input("a.png")})).Encode())
			}
			began := time.Now()
			_, err := transfer.Push(t.Context(), tenant, in, Target{Name: "gpu", Boot: "b1", Instance: c.stuck})
			require.ErrorIs(t, err, comfyui.ErrUnreachable)
			require.LessOrEqual(t, time.Since(began), 2*time.Minute)
		})
	})
}

// A file without end on an instance is another one than the input, which the hub knows as soon as it
// has read more than that.
func TestPushBesideAFileWithoutEnd(t *testing.T) {
	s, i := parallelStore(t), &stuck{instance: newInstance(), endless: true}
	i.put(input("a.png"), "one")
	s.mustUpload(t, input("a.png"), "one")
	pins := must(s.Pin(t.Context(), tenant, []job.FileRef{input("a.png")}))
	rewrites := must(NewPusher(s, newCollector(t, s, i.instance), false).Push(t.Context(), tenant, pins, Target{Name: "gpu", Instance: i}))
	require.Equal(t, []Rewrite{{input("a.png"), byContent("one", "a.png")}}, rewrites)
	require.Equal(t, 1, i.views)
}
