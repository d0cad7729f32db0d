package files

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

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

// outputOf makes an output of a different tenant than usual.
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
	bytes, err := s.db.Client().ZScore(t.Context(), s.sharesKey(), owner).Result()
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
		s.letGo(t, s.blobs(t)...)
		for name, excess := range map[string]func() ([]Excess, error){
			"of all":      func() ([]Excess, error) { return s.Excess(ctx, 400, 0) },
			"of a tenant": func() ([]Excess, error) { return s.Excess(ctx, 0, 300) },
			"of both":     func() ([]Excess, error) { return s.Excess(ctx, 500, 300) },
		} {
			require.Equal(t, []Excess{{Tenant: "large", Until: minute(2)}}, must(excess()), name)
		}
		require.Equal(t, Swept{Files: 2, Bytes: 200}, must(s.ExpireOwn(ctx, "large", minute(2), keep(nil))))
		require.Equal(t, int64(300), s.shareOf(t, "large"))
		require.Equal(t, int64(100), s.shareOf(t, "small"))
		require.Empty(t, must(s.Excess(ctx, 400, 300)))
		must(s.ExpireOwn(ctx, "large", minute(9), keep(nil)))
		require.Zero(t, must(s.db.Client().Exists(ctx, s.ownKey("large")).Result()))
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
		require.NoError(t, s.db.Client().Del(ctx, s.ownKey("ann"), s.sharesKey()).Err())
		for range 2 {
			require.NoError(t, s.Adopt(ctx))
			require.Equal(t, int64(300), s.shareOf(t, "ann"))
		}
		require.Equal(t, []Excess{{Tenant: "ann", Until: minute(1)}}, must(s.Excess(ctx, 0, 100)))
	})
}
