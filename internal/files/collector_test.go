package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// allotted makes a file on an instance and names it at the hub.
func allotted(t testing.TB, s *Store, i *instance, name, data string) job.FileRef {
	t.Helper()
	i.put(output(name), data)
	return must(s.AllotOutput(t.Context(), tenant, i.source("gpu1", output(name))))
}

func TestCollect(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		i := newInstance()
		c := newCollector(t, s, i)
		ref := allotted(t, s, i, "x_00001_.png", "picture")
		e := must(c.Collect(t.Context(), tenant, ref))
		require.Equal(t, sum([]byte("picture")), e.SHA256)
		require.EqualValues(t, 7, e.Size)
		require.Equal(t, i.source("gpu1", ref).ETag, e.ETag, "the ETag does not change by the copy")
		require.Equal(t, i.clock.Truncate(time.Second).UTC(), e.Modified.UTC())
		i.drop(ref)
		require.Equal(t, "picture", s.mustRead(t, ref))
		must(c.Collect(t.Context(), tenant, ref))
		require.Equal(t, 1, i.fetches)

		_, err := c.Collect(t.Context(), tenant, output("unknown"))
		require.ErrorIs(t, err, ErrNotFound)
	})
}

func TestCollectOnce(t *testing.T) {
	s, i := parallelStore(t), newInstance()
	go_ := make(chan struct{})
	c := NewCollector(s, func(ctx context.Context, src Source, h http.Header) (*http.Response, error) {
		<-go_
		return i.fetch(ctx, src, h)
	}, CollectorOptions{})
	defer c.Close()
	ref := allotted(t, s, i, "x_00001_.png", "picture")

	// The first caller goes away, and the copy goes on for the others.
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.Collect(ctx, tenant, ref)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("first: %v", err)
		}
	})
	waiting := func(n int) func() bool {
		return func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, f := range c.flights {
				return f.waiting == n
			}
			return n == 0
		}
	}
	require.Eventually(t, waiting(1), time.Minute, time.Millisecond)
	for range 5 {
		wg.Go(func() {
			if _, err := c.Collect(t.Context(), tenant, ref); err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, waiting(6), time.Minute, time.Millisecond)
	leave()
	require.Eventually(t, waiting(5), time.Minute, time.Millisecond)
	close(go_)
	wg.Wait()
	require.Equal(t, 1, i.fetches)
	require.Len(t, s.blobKeys(t), 1)
}

func TestCollectGivenUpByAll(t *testing.T) {
	s, i := parallelStore(t), newInstance()
	begun, ended := make(chan struct{}), make(chan struct{})
	c := NewCollector(s, func(ctx context.Context, _ Source, _ http.Header) (*http.Response, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}, CollectorOptions{})
	ref := allotted(t, s, i, "x_00001_.png", "picture")
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-begun; leave() }()
	_, err := c.Collect(ctx, tenant, ref)
	require.ErrorIs(t, err, context.Canceled)
	<-ended
	c.Close()
	_, err = c.Collect(t.Context(), tenant, ref)
	require.ErrorIs(t, err, ErrClosed)
}

func TestCollectFailures(t *testing.T) {
	type row struct {
		hook func(*http.Response)
		want error
	}
	beside.Cases(t, map[string]row{
		"gone":     {func(r *http.Response) { r.StatusCode = http.StatusNotFound }, ErrGone},
		"trouble":  {func(r *http.Response) { r.StatusCode = http.StatusInternalServerError }, ErrInstance},
		"replaced": {func(r *http.Response) { r.Header.Set("Etag", `"other"`) }, ErrChanged},
		"cut off": {func(r *http.Response) {
			r.Body = io.NopCloser(brokenReader{strings.NewReader("pic")})
			r.Header.Del("Etag") // nothing tells whether the rest is from the same file
			r.Header.Del("Last-Modified")
		}, ErrInstance},
	}, func(t *testing.T, c row) {
		s, i := newStore(t, redistest.Embedded(t)), newInstance()
		ref := allotted(t, s, i, "x_00001_.png", "picture")
		i.hook = c.hook
		collector := newCollector(t, s, i)
		_, err := collector.Collect(t.Context(), tenant, ref)
		require.ErrorIs(t, err, c.want)
		require.False(t, must(s.Resolve(t.Context(), tenant, ref)).Stored(), "part of a file is no file")
		require.Empty(t, s.blobKeys(t))
		i.hook = nil
		_, err = collector.Collect(t.Context(), tenant, ref)
		require.NoError(t, err, "the next try is a new one")
	})
}

// Two hubs copy the same file. The copy that finishes first is kept.
func TestCollectOnTwoHubs(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		i := newInstance()
		ref := allotted(t, s, i, "x_00001_.png", "picture")
		slow := newCollector(t, s, i)
		i.hook = func(r *http.Response) {
			r.Body = io.NopCloser(io.MultiReader(readerFunc(func([]byte) (int, error) {
				// In the middle of the copy the other hub finishes its own.
				i.mu.Lock()
				i.hook = nil
				i.mu.Unlock()
				_, err := newCollector(t, s, i).Collect(t.Context(), tenant, ref)
				if err != nil {
					t.Error(err)
				}
				return 0, io.EOF
			}), r.Body))
		}
		require.Equal(t, []string{must(slow.Collect(t.Context(), tenant, ref)).Key}, s.blobKeys(t), "the superfluous copy is deleted")
		require.Equal(t, "picture", s.mustRead(t, ref))
	})
}

// What is copied of a name that is gone by then leaves nothing.
func TestCollectOfALostName(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		i := newInstance()
		ref := allotted(t, s, i, "x_00001_.png", "picture")
		i.hook = func(*http.Response) {
			if err := s.Remove(t.Context(), tenant, []job.FileRef{ref}); err != nil {
				t.Error(err)
			}
		}
		_, err := newCollector(t, s, i).Collect(t.Context(), tenant, ref)
		require.ErrorIs(t, err, ErrNotFound)
		require.Empty(t, s.blobKeys(t))
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestSetStoredOfALostName(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		i := newInstance()
		ref := allotted(t, s, i, "x_00001_.png", "picture")
		e := must(s.Resolve(t.Context(), tenant, ref))
		require.NoError(t, s.blobs.hold(t.Context(), "output/ab/abc"))
		must(s.Upload(t.Context(), tenant, ref, true, bytes.NewReader(nil)))
		_, err := s.SetStored(t.Context(), tenant, e, Copied{Key: "output/ab/abc", Size: 1})
		require.ErrorIs(t, err, ErrNotFound, "the upload has the name now")
		require.NoError(t, s.Remove(t.Context(), tenant, []job.FileRef{ref}))
		_, err = s.SetStored(t.Context(), tenant, e, Copied{Key: "output/ab/abc", Size: 1})
		require.ErrorIs(t, err, ErrNotFound)
	})
}

// A blob that was just written needs no hold to get its name; any other does.
func TestSetStoredWithoutHold(t *testing.T) {
	t.Parallel()
	const key = "output/ab/abc"
	for name, c := range map[string]struct {
		age          time.Duration
		doomed, held bool
		want         error
	}{
		"just written":                   {},
		"written half an hour ago":       {age: youngFor + time.Minute, want: errUnsafe},
		"written in the future":          {age: -youngFor - time.Minute, want: errUnsafe},
		"being deleted":                  {doomed: true, want: errUnsafe},
		"written long ago, and held now": {age: 10 * time.Hour, held: true},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *Store) {
				i := newInstance()
				ref := allotted(t, s, i, "x_00001_.png", "picture")
				e := must(s.Resolve(t.Context(), tenant, ref))
				must(s.storage.Write(t.Context(), key, bytes.NewReader([]byte("picture"))))
				if c.doomed {
					require.Equal(t, "ok", must(s.db.Run(t.Context(), doomScript, key, doomFor.Milliseconds()))[0])
				}
				if c.held {
					require.NoError(t, s.blobs.hold(t.Context(), key))
				}
				_, err := s.SetStored(t.Context(), tenant, e, Copied{Key: key, Size: 7, Began: time.Now().Add(-c.age)})
				require.ErrorIs(t, err, c.want)
				if c.want == nil {
					require.Zero(t, s.later(2*time.Hour).sweepAll(t, nil).Files, "it has a name")
					require.Equal(t, "picture", s.mustRead(t, ref))
				}
			})
		})
	}
}

// between calls a function before a script, once.
type between struct {
	call func()
	done atomic.Bool
}

func (b *between) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (b *between) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if cmd.Name() == "evalsha" && !b.done.Swap(true) {
			b.call()
		}
		return next(ctx, cmd)
	}
}

func (b *between) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// A hub that was stopped for hours between the last byte of a copy and its name finds that a sweep
// has deleted the copy, and makes another.
func TestCollectAfterASweep(t *testing.T) {
	t.Parallel()
	i := newInstance()
	s := newStore(t, redistest.Open(t, redistest.Start(t).URL()))
	ref := allotted(t, s, i, "x_00001_.png", "picture")
	stopped := s.later(-2 * time.Hour) // so long ago it began to copy
	c := newCollector(t, stopped, i)
	var swept Swept
	s.db.Client().AddHook(&between{call: func() { swept = s.later(2*time.Hour).sweepAll(t, nil) }})
	_, err := c.Collect(t.Context(), tenant, ref)
	require.Equal(t, 1, swept.Files)
	if err != nil {
		_, err = c.Collect(t.Context(), tenant, ref)
	}
	require.NoError(t, err)
	require.Equal(t, "picture", s.mustRead(t, ref))
}
