package files

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
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
	beside.Cases(t, map[string]row{
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
			names, wait, err := transfer.Collect(t.Context(), tenant, outputs, nil, from, tt.cached)
			require.NoError(t, err)
			require.NoError(t, wait(t.Context()))
			require.Equal(t, "picture 0", s.mustRead(t, names[0]))
			require.Equal(t, [2]int{tt.fetches, tt.stats}, [2]int{i.fetches, i.stats}, "whole files and headers")

			// The same files once more: the hub has their bytes.
			_, wait, err = transfer.Collect(t.Context(), tenant, outputs, nil, from, true)
			require.NoError(t, err)
			require.NoError(t, wait(t.Context()))
			require.Equal(t, [2]int{tt.fetches, tt.stats + tt.count}, [2]int{i.fetches, i.stats})
			_, wait, err = transfer.Collect(t.Context(), tenant, outputs, nil, from, false)
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
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
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
			Collect(t.Context(), tenant, outputs, nil, Target{Name: "gpu", Boot: "b1", Instance: i}, false)
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
	beside.Cases(t, map[string]row{
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
		_, _, err := NewTransfer(s, c, nil, slog.New(slog.DiscardHandler)).Collect(ctx, tenant, outputs, nil, from, false)
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
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
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
			Collect(run, tenant, putOutputs(i, 1), nil, Target{Name: "gpu", Boot: "b1", Instance: i}, false)
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

// The table of Bond.
func TestMeetings(t *testing.T) {
	t.Parallel()
	a, b := tied{id: "a", beat: 5}, tied{id: "b", beat: 5}
	for name, c := range map[string]struct {
		meeting
		want outcome
	}{
		"first meeting":                          {meeting{}, join},
		"an upgrade":                             {meeting{blobs: 100, named: 80}, join},
		"an upgrade with an empty Redis":         {meeting{blobs: 100}, strangers},
		"an upgrade of two fleets on a bucket":   {meeting{blobs: 100, named: 20}, strangers},
		"an empty Redis":                         {meeting{stored: a, blobs: 100}, strangers},
		"an empty Redis, a new storage":          {meeting{stored: a, blobs: 100, young: true}, strangers},
		"an empty Redis and an empty storage":    {meeting{stored: a}, join},
		"an old dump from before the upgrade":    {meeting{stored: a, blobs: 100, named: 90}, strangers},
		"a failover just after the upgrade":      {meeting{stored: a, blobs: 100, named: 90, young: true}, recall},
		"a new storage":                          {meeting{redis: a}, join},
		"a hub that was killed while they met":   {meeting{redis: a, blobs: 100, named: 90}, join},
		"another storage, of an old version":     {meeting{redis: a, blobs: 100}, strangers},
		"the same":                               {meeting{redis: a, stored: a}, together},
		"a failover that has lost the last beat": {meeting{redis: tied{"a", 4}, stored: a}, together},
		"an old dump":                            {meeting{redis: tied{"a", 3}, stored: a}, strangers},
		"an old copy of the storage":             {meeting{redis: tied{"a", 50}, stored: a}, together},
		"another Redis, nothing to lose":         {meeting{redis: b, stored: a}, join},
		"another Redis":                          {meeting{redis: b, stored: a, blobs: 1}, strangers},
		"another Redis with the same uploads":    {meeting{redis: b, stored: a, blobs: 9, named: 9, young: true}, strangers},
	} {
		got, reason := c.judge()
		require.Equal(t, c.want, got, name)
		require.Equal(t, got == strangers, reason != "", name)
	}
}

// onAnother returns the same storage with another Redis.
func (s *Store) onAnother(t *testing.T, db *redis.DB) *Store {
	t.Helper()
	return New(db, s.storage, Options{SpoolDir: t.TempDir()})
}

func (s *Store) bond() *Bond { return NewBond(s.db, s.storage) }

// Another Redis is noticed, even by a hub that has just started, and can be adopted on purpose.
func TestAnotherRedis(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		require.NoError(t, s.bond().Meet(t.Context()))
		s.mustUpload(t, input("a"), "picture")
		require.NoError(t, s.bond().Meet(t.Context()))
		require.NoError(t, s.bond().Beat(t.Context()))
		require.NoError(t, s.bond().Meet(t.Context()))

		other := s.onAnother(t, redistest.Embedded(t))
		hubs := []*Bond{other.bond(), other.bond()}
		for _, hub := range hubs {
			for range 2 {
				require.ErrorIs(t, hub.Meet(t.Context()), ErrStrangers)
				require.ErrorIs(t, hub.Err(), ErrStrangers)
			}
		}
		require.NoError(t, s.bond().Meet(t.Context()), "the right one may come back")

		require.NoError(t, hubs[0].Adopt(t.Context()))
		for _, hub := range hubs {
			require.NoError(t, hub.Meet(t.Context()))
			require.NoError(t, hub.Err())
			require.NoError(t, hub.Beat(t.Context()))
			require.NoError(t, hub.Meet(t.Context()))
		}
		before := s.bond()
		require.NoError(t, before.Beat(t.Context()), "it counts no more")
		require.NoError(t, hubs[0].Meet(t.Context()))
		require.ErrorIs(t, before.Meet(t.Context()), ErrStrangers, "it has lost the storage")
	})
}

// A Redis that was emptied or reset to an older state is noticed, but not one that has only lost
// its last moment.
func TestAnOlderRedis(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		s.mustUpload(t, input("a"), "picture")
		bond, key := s.bond(), s.db.Key("files", "bond")
		require.NoError(t, bond.Meet(t.Context()))
		require.NoError(t, s.db.Client().Del(t.Context(), key).Err())
		require.NoError(t, bond.Meet(t.Context()), "the id was lost just after it was made")
		for range 5 {
			require.NoError(t, bond.Beat(t.Context()))
		}
		require.NoError(t, s.db.Client().HSet(t.Context(), key, "beat", "4").Err())
		require.NoError(t, bond.Meet(t.Context()))
		require.NoError(t, s.db.Client().HSet(t.Context(), key, "beat", "3").Err())
		require.ErrorIs(t, bond.Meet(t.Context()), ErrStrangers)
		require.NoError(t, bond.Adopt(t.Context()))
		require.NoError(t, bond.Meet(t.Context()))

		require.NoError(t, s.Remove(t.Context(), tenant, []job.FileRef{input("a")}))
		require.NoError(t, s.db.Client().Del(t.Context(), key).Err())
		require.ErrorIs(t, bond.Meet(t.Context()), ErrStrangers, "it knows no file")
	})
}

// A storage of a version before the bond goes on with the Redis that knows it.
func TestBondOfAnOldInstallation(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		for n := range 20 {
			s.mustUpload(t, input(fmt.Sprint(n)), fmt.Sprint("picture ", n))
		}
		for n := range 5 { // what killed hubs have left behind
			must(s.storage.Write(t.Context(), outputKey(fmt.Sprintf("0%d-left", n)), bytes.NewReader([]byte("x"))))
		}
		other := s.onAnother(t, redistest.Embedded(t))
		require.ErrorIs(t, other.bond().Meet(t.Context()), ErrStrangers)
		require.NoError(t, s.bond().Meet(t.Context()))
		require.ErrorIs(t, other.bond().Meet(t.Context()), ErrStrangers)
	})
}

// Hubs that start together agree.
func TestHubsMeetTogether(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		var hubs sync.WaitGroup
		for range 8 {
			hubs.Go(func() {
				bond := s.bond()
				if bond.Meet(t.Context()) != nil || bond.Beat(t.Context()) != nil {
					t.Error("strangers")
				}
			})
		}
		hubs.Wait()
		id := must(s.storage.text(t.Context(), bondKey, maxBond))
		require.Len(t, id, 36)
		require.NoError(t, s.bond().Meet(t.Context()))
		require.True(t, strings.HasPrefix(must(s.storage.text(t.Context(), beatKey, maxBond)), id+" "))
	})
}
