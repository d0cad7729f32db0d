package files

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// output makes an output of size bytes that the hub has.
func (s *Store) output(t testing.TB, i *instance, c *Collector, name string, size int) job.FileRef {
	t.Helper()
	ref := job.FileRef{Type: job.TypeOutput, Filename: name}
	i.put(ref, strings.Repeat("x", size))
	got := must(s.AllotOutput(t.Context(), tenant, i.source("gpu", ref)))
	must(c.Collect(t.Context(), tenant, got))
	return got
}

// ends records the end of a job whose history entry names files, the way package queue writes it.
func (s *Store) ends(t testing.TB, at time.Time, refs ...job.FileRef) {
	t.Helper()
	indexes, members := s.Uses(tenant, refs)
	for _, index := range indexes {
		for _, member := range members {
			require.NoError(t, s.db.Client().Do(t.Context(), "ZADD", index, "XX", at.UnixMilli(), member).Err())
		}
	}
}

func (s *Store) names(t testing.TB, typ string) []string {
	t.Helper()
	entries := must(s.List(t.Context(), tenant, typ, ""))
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Ref.Filename)
	}
	return names
}

func minute(n int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(n)*60_000) }

// Files go with the last history entry that names them. A file that a cached run
// has named again stays, and so does one that a waiting job has pinned.
func TestExpireOutputs(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx, i := t.Context(), newInstance()
		c := newCollector(t, s, i)
		for n := range 5 {
			s.output(t, i, c, fmt.Sprintf("x_%05d_.png", n), 10)
		}
		out := func(n int) job.FileRef {
			return job.FileRef{Type: job.TypeOutput, Filename: fmt.Sprintf("x_%05d_.png", n)}
		}
		swept := must(NewRetention(s).Expire(ctx, job.TypeOutput, time.Now(), keep(nil)))
		require.Zero(t, swept.Files, "their runs go on")

		s.ends(t, minute(0), out(0), out(1), out(3))
		s.ends(t, minute(5), out(1), out(4)) // a cached run
		pinned := must(s.Pin(ctx, tenant, []job.FileRef{out(3)}))
		s.ends(t, minute(0), out(3)) // as if it had been pinned long ago
		s.letGo(t, s.blobKeys(t)...)
		kept := map[string]bool{pinned.Keys()[0]: true}

		swept = must(NewRetention(s).Expire(ctx, job.TypeOutput, minute(-1), keep(kept)))
		require.Zero(t, swept.Files)
		swept = must(NewRetention(s).Expire(ctx, job.TypeOutput, minute(1), keep(kept)))
		require.Equal(t, Swept{Files: 1, Bytes: 10}, swept)
		_, err := s.Resolve(ctx, tenant, out(0))
		require.ErrorIs(t, err, ErrNotFound)
		require.Len(t, s.blobKeys(t), 4, "its bytes are gone, too")
		for _, n := range []int{1, 2, 3, 4} {
			require.Len(t, s.mustRead(t, out(n)), 10, n)
		}
		// The pinned file counted as used when it was checked.
		swept = must(NewRetention(s).Expire(ctx, job.TypeOutput, minute(1), keep(nil)))
		require.Zero(t, swept.Files)
		swept = must(NewRetention(s).Expire(ctx, job.TypeOutput, minute(5), keep(nil)))
		require.Equal(t, 2, swept.Files)
		require.ElementsMatch(t, []string{"x_00002_.png", "x_00003_.png"}, s.names(t, job.TypeOutput))

		// The instance still has the file, and a cached run names it again.
		again := must(s.AllotOutput(ctx, tenant, i.source("gpu", out(0))))
		require.Equal(t, out(0), again)
		require.True(t, must(c.Collect(ctx, tenant, again)).Stored())
	})
}

func TestExpireInputs(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for _, name := range []string{"a", "b", "c"} {
			s.mustUpload(t, input(name), name)
		}
		s.letGo(t, s.blobKeys(t)...)
		require.NoError(t, s.db.Client().Do(ctx, "ZADD", s.keys.used(job.TypeInput), minute(0).UnixMilli(), redis.Pack(tenant, job.TypeInput, "", "a"),
			minute(0).UnixMilli(), redis.Pack(tenant, job.TypeInput, "", "b"), minute(0).UnixMilli(), redis.Pack(tenant, job.TypeInput, "", "c")).Err())
		// Uploaded again, and used by a job.
		require.Equal(t, "b", s.mustUpload(t, input("b"), "b").Filename)
		must(s.Pin(ctx, tenant, []job.FileRef{input("c")}))
		must(NewRetention(s).Expire(ctx, job.TypeOutput, minute(1), keep(nil)))
		require.ElementsMatch(t, []string{"a", "b", "c"}, s.names(t, job.TypeInput), "inputs are no outputs")
		require.Equal(t, Swept{Files: 1, Bytes: 1}, must(NewRetention(s).Expire(ctx, job.TypeInput, minute(1), keep(nil))))
		require.ElementsMatch(t, []string{"b", "c"}, s.names(t, job.TypeInput))
	})
}

func TestExcess(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx, i := t.Context(), newInstance()
		c := newCollector(t, s, i)
		var refs []job.FileRef
		for n := range 4 {
			refs = append(refs, s.output(t, i, c, fmt.Sprintf("x_%05d_.png", n), 100))
			s.ends(t, minute(n), refs[n])
		}
		s.mustUpload(t, input("a"), strings.Repeat("a", 5000))
		excess := func(size int64) time.Time {
			excess := must(NewRetention(s).Excess(ctx, max(size, 1), 0))
			if len(excess) == 0 {
				return time.Time{}
			}
			require.Len(t, excess, 1)
			require.Equal(t, tenant, excess[0].Tenant)
			return excess[0].Until
		}
		require.Zero(t, excess(400))
		require.Equal(t, minute(0), excess(399))
		require.Equal(t, minute(0), excess(300))
		require.Equal(t, minute(1), excess(299))
		require.Equal(t, minute(3), excess(0))
		s.letGo(t, s.blobKeys(t)...)
		require.Equal(t, Swept{Files: 2, Bytes: 200}, must(NewRetention(s).Expire(ctx, job.TypeOutput, excess(250), keep(nil))))
		require.Zero(t, excess(250))
		// A file that an upload replaces, or that is removed, no longer takes up room.
		must(s.Upload(ctx, tenant, refs[2], true, strings.NewReader("new")))
		require.Zero(t, excess(100))
		require.NoError(t, s.Remove(ctx, tenant, refs[3:]))
		require.Zero(t, excess(0))
	})
}

// A name stays if its pins cannot be determined.
func TestExpireWithoutPins(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		i := newInstance()
		ref := s.output(t, i, newCollector(t, s, i), "x_00001_.png", 1)
		s.ends(t, minute(0), ref)
		away := errors.New("away")
		_, err := NewRetention(s).Expire(t.Context(), job.TypeOutput, minute(1), func(context.Context) (map[string]bool, error) { return nil, away })
		require.ErrorIs(t, err, away)
		require.Equal(t, "x", s.mustRead(t, ref))
	})
}

func TestLead(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		lead := func(hub, duty string) bool { return must(s.sharing().Lead(t.Context(), duty, hub, time.Hour)) }
		require.True(t, lead("one", "house"))
		require.False(t, lead("two", "house"))
		require.True(t, lead("one", "house"), "it keeps it")
		require.True(t, lead("two", "other"))
		require.NoError(t, s.db.Client().Del(t.Context(), s.db.Key("files", "duty", "house")).Err())
		require.True(t, lead("two", "house"), "the first one died")
	})
}

func TestLevelOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shares []int64
		size   int64
		level  int64
		over   bool
	}{
		{nil, 0, 0, false},
		{[]int64{5, 3}, 8, 0, false},
		{[]int64{5, 3}, 7, 4, true},
		{[]int64{100, 3, 2}, 20, 15, true},
		{[]int64{100, 100, 2}, 20, 9, true},
		{[]int64{9, 9, 9}, 3, 1, true},
		{[]int64{9, 9, 9}, 1, 0, true},
	} {
		var shares []share
		for _, bytes := range c.shares {
			shares = append(shares, share{bytes: bytes})
		}
		level, over := levelOf(shares, c.size)
		require.Equal(t, c.over, over, c)
		require.Equal(t, c.level, level, c)
	}
}

// outputOf makes an output of a tenant other than the usual one.
func (s *Store) outputOf(t *testing.T, i *instance, c *Collector, owner, name string, size, at int) {
	t.Helper()
	ref := job.FileRef{Type: job.TypeOutput, Filename: name}
	i.put(ref, strings.Repeat("x", size))
	got := must(s.AllotOutput(t.Context(), owner, i.source("gpu", ref)))
	must(c.Collect(t.Context(), owner, got))
	indexes, members := s.Uses(owner, []job.FileRef{got})
	require.Len(t, indexes, 2)
	for _, index := range indexes {
		require.NoError(t, s.db.Client().Do(t.Context(), "ZADD", index, "XX", minute(at).UnixMilli(), members[0]).Err())
	}
}

func (s *Store) shareOf(t *testing.T, owner string) int64 {
	t.Helper()
	bytes, err := s.db.Client().ZScore(t.Context(), s.keys.shares(), owner).Result()
	if err != nil {
		require.ErrorIs(t, err, redis.Nil)
	}
	return int64(bytes)
}

// The tenant with the most files pays, however old the files of others are.
func TestExcessIsThatOfTheLargest(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx, i := t.Context(), newInstance()
		c := newCollector(t, s, i)
		s.outputOf(t, i, c, "small", "old.png", 100, 0)
		for n := range 5 {
			s.outputOf(t, i, c, "large", fmt.Sprintf("l_%05d_.png", n), 100, n+1)
		}
		s.letGo(t, s.blobKeys(t)...)
		for name, excess := range map[string]func() ([]Excess, error){
			"of all":      func() ([]Excess, error) { return NewRetention(s).Excess(ctx, 400, 0) },
			"of a tenant": func() ([]Excess, error) { return NewRetention(s).Excess(ctx, 0, 300) },
			"of both":     func() ([]Excess, error) { return NewRetention(s).Excess(ctx, 500, 300) },
		} {
			require.Equal(t, []Excess{{Tenant: "large", Until: minute(2)}}, must(excess()), name)
		}
		require.Equal(t, Swept{Files: 2, Bytes: 200}, must(NewRetention(s).ExpireOwn(ctx, "large", minute(2), keep(nil))))
		require.Equal(t, int64(300), s.shareOf(t, "large"))
		require.Equal(t, int64(100), s.shareOf(t, "small"))
		require.Empty(t, must(NewRetention(s).Excess(ctx, 400, 300)))
		must(NewRetention(s).ExpireOwn(ctx, "large", minute(9), keep(nil)))
		require.Zero(t, must(s.db.Client().Exists(ctx, s.keys.outputs("large")).Result()))
		require.Zero(t, s.shareOf(t, "large"))
	})
}

// Files of an older hub are counted once.
func TestAdopt(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx, i := t.Context(), newInstance()
		c := newCollector(t, s, i)
		for n := range 3 {
			s.outputOf(t, i, c, "ann", fmt.Sprintf("x_%05d_.png", n), 100, n)
		}
		require.NoError(t, s.db.Client().Del(ctx, s.keys.outputs("ann"), s.keys.shares()).Err())
		for range 2 {
			require.NoError(t, NewRetention(s).Adopt(ctx))
			require.Equal(t, int64(300), s.shareOf(t, "ann"))
		}
		require.Equal(t, []Excess{{Tenant: "ann", Until: minute(1)}}, must(NewRetention(s).Excess(ctx, 0, 100)))
	})
}
