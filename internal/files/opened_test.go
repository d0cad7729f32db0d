package files

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// bodies counts the bodies that are open.
type bodies struct{ open atomic.Int64 }

func (b *bodies) of(fetch Fetch) Fetch {
	return func(ctx context.Context, src Source, header http.Header) (*http.Response, error) {
		resp, err := fetch(ctx, src, header)
		if err == nil {
			b.open.Add(1)
			resp.Body = &countedBody{ReadCloser: resp.Body, all: b}
		}
		return resp, err
	}
}

type countedBody struct {
	io.ReadCloser
	all    *bodies
	closed atomic.Bool
}

func (b *countedBody) Close() error {
	if b.closed.CompareAndSwap(false, true) {
		b.all.open.Add(-1)
	}
	return b.ReadCloser.Close()
}

// One request fetches a new output: it tells the ETag that the name depends on, and its body is
// copied. For an output that the instance had cached, only the header is asked for.
func TestAnOutputCostsOneRequest(t *testing.T) {
	type row struct {
		count, fetches, stats int
		cached                bool
	}
	sideBySide(t, map[string]row{
		"one":    {count: 1, fetches: 1},
		"cached": {count: 1, fetches: 1, stats: 1, cached: true},
	}, func(t *testing.T, tt row) {
		redistest.Each(t, func(t *testing.T, db *redis.DB) {
			s, i, open := newStore(t, db), newInstance(), &bodies{}
			c := NewCollector(s, open.of(i.fetch), CollectorOptions{})
			t.Cleanup(c.Close)
			transfer := NewTransfer(s, c, nil, slog.New(slog.DiscardHandler))
			from := Target{Name: "gpu", Boot: "b1", Instance: i}
			outputs := putOutputs(i, tt.count)
			names, wait, err := transfer.Collect(t.Context(), tenant, outputs, from, tt.cached)
			require.NoError(t, err)
			require.NoError(t, wait(t.Context()))
			require.Equal(t, "picture 0", s.mustRead(t, names[0]))
			require.Equal(t, [2]int{tt.fetches, tt.stats}, [2]int{i.fetches, i.stats}, "whole files and headers")

			// The same files once more: the hub has their bytes.
			_, wait, err = transfer.Collect(t.Context(), tenant, outputs, from, true)
			require.NoError(t, err)
			require.NoError(t, wait(t.Context()))
			require.Equal(t, [2]int{tt.fetches, tt.stats + tt.count}, [2]int{i.fetches, i.stats})
			_, wait, err = transfer.Collect(t.Context(), tenant, outputs, from, false)
			require.NoError(t, err)
			require.NoError(t, wait(t.Context()))
			require.Zero(t, open.open.Load(), "all connections have ended")
			require.Zero(t, c.slots.used, "and their slots are free")
		})
	})
}

func putOutputs(i *instance, count int) (outputs []job.FileRef) {
	for n := range count {
		ref := job.FileRef{Type: job.TypeOutput, Filename: fmt.Sprintf("a_%05d_.png", n+1)}
		i.put(ref, fmt.Sprint("picture ", n))
		outputs = append(outputs, ref)
	}
	return outputs
}

// A batch of many outputs opens no more of them than its uplink may have copies, and each arrives
// under its own name.
func TestManyOutputsOfOneMessage(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		const count = 30
		s, i, open := newStore(t, db), newInstance(), &bodies{}
		var most atomic.Int64
		fetch := open.of(i.fetch)
		c := NewCollector(s, func(ctx context.Context, src Source, h http.Header) (*http.Response, error) {
			resp, err := fetch(ctx, src, h)
			most.Store(max(most.Load(), open.open.Load()))
			return resp, err
		}, CollectorOptions{})
		t.Cleanup(c.Close)
		outputs := putOutputs(i, count)
		names, wait, err := NewTransfer(s, c, nil, slog.New(slog.DiscardHandler)).
			Collect(t.Context(), tenant, outputs, Target{Name: "gpu", Boot: "b1", Instance: i}, false)
		require.NoError(t, err)
		require.NoError(t, wait(t.Context()))
		for n, name := range names {
			require.Equal(t, fmt.Sprint("picture ", n), s.mustRead(t, name))
		}
		require.LessOrEqual(t, most.Load(), int64(perUplink))
		require.Equal(t, count, i.fetches)
		require.Zero(t, open.open.Load())
		require.Zero(t, c.slots.used)
	})
}

// What was opened is closed if the copy never begins: Redis gives no names, one of the files is
// gone, or the run ends.
func TestOpenedIsClosed(t *testing.T) {
	type row struct {
		gone, away, ended bool
		err               error
	}
	sideBySide(t, map[string]row{
		"Redis is away":     {away: true, err: redis.ErrUnavailable},
		"a file is gone":    {gone: true, err: ErrGone},
		"the run has ended": {ended: true, err: ErrInstance},
	}, func(t *testing.T, tt row) {
		server := redistest.Start(t)
		s, i, open := newStore(t, redistest.Open(t, server.URL())), newInstance(), &bodies{}
		c := NewCollector(s, open.of(i.fetch), CollectorOptions{})
		t.Cleanup(c.Close)
		outputs := putOutputs(i, 3)
		if tt.gone {
			i.drop(outputs[2])
		}
		if tt.away {
			server.Stop()
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		from := Target{Name: "gpu", Boot: "b1", Instance: i}
		if tt.ended {
			cancel()
			from.Instance = endedInstance{i}
		}
		_, _, err := NewTransfer(s, c, nil, slog.New(slog.DiscardHandler)).Collect(ctx, tenant, outputs, from, false)
		require.ErrorIs(t, err, tt.err)
		require.Eventually(t, func() bool { return open.open.Load() == 0 }, time.Minute, time.Millisecond)
		require.Zero(t, c.slots.used)
	})
}

// endedInstance is one whose requests have ended with their context.
type endedInstance struct{ *instance }

func (endedInstance) Stat(ctx context.Context, _ job.FileRef) (info comfyui.FileInfo, found bool, err error) {
	return info, false, context.Cause(ctx)
}

// If a run that opened an output ends, a copy that began with the name goes on over a new
// connection for others who want the file.
func TestOpenedOutlivesItsRun(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, db *redis.DB) {
		s, i := newStore(t, db), newInstance()
		reading, release := make(chan struct{}, 1), make(chan struct{})
		c := NewCollector(s, func(ctx context.Context, src Source, h http.Header) (*http.Response, error) {
			resp, err := i.fetch(ctx, src, h)
			if err == nil {
				resp.Body = &heldBody{ReadCloser: resp.Body, ctx: ctx, reading: reading, release: release}
			}
			return resp, err
		}, CollectorOptions{})
		t.Cleanup(c.Close)
		run, end := context.WithCancel(t.Context())
		names, _, err := NewTransfer(s, c, nil, slog.New(slog.DiscardHandler)).
			Collect(run, tenant, putOutputs(i, 1), Target{Name: "gpu", Boot: "b1", Instance: i}, false)
		require.NoError(t, err)
		<-reading
		got := make(chan error, 1)
		joined := make(chan struct{})
		go func() {
			e, err := s.Resolve(t.Context(), tenant, names[0])
			if err == nil {
				close(joined)
				_, err = c.collect(t.Context(), tenant, e.Ref, e, nil)
			}
			got <- err
		}()
		<-joined
		require.Eventually(t, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, f := range c.flights {
				return f.waiting == 2
			}
			return false
		}, time.Minute, time.Millisecond)
		end()
		close(release)
		require.NoError(t, <-got)
		require.Equal(t, "picture 0", s.mustRead(t, names[0]))
	})
}

// heldBody is read once release is closed, and breaks off with its context.
type heldBody struct {
	io.ReadCloser
	ctx              context.Context
	reading, release chan struct{}
}

func (b *heldBody) Read(p []byte) (int, error) {
	select {
	case b.reading <- struct{}{}:
	default:
	}
	select {
	case <-b.release:
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
	return b.ReadCloser.Read(p)
}
