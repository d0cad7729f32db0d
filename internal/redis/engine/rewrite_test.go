package engine_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
)

// large is a value that stays in the file.
func large(seed int) string { return strings.Repeat(fmt.Sprintf("%08d", seed), 6000) }

const put = `redis.write('SET', 'large:' .. ARGV[1], ARGV[2]) redis.write('HSET', 'hash', ARGV[1], ARGV[2]) return {'ok'}`

// Large values are read where they are, before and after they reach the file,
// after a rewrite and after a restart; memory does not hold them.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	check := func(db *bench) {
		t.Helper()
		for n := range 20 {
			want := large(n)
			got := must(db.client.Get(t.Context(), fmt.Sprint("large:", n)).Result())
			require.True(t, want == got, n)
			got = must(db.client.HGet(t.Context(), "hash", fmt.Sprint(n)).Result())
			require.True(t, want == got, n)
			require.EqualValues(t, len(want), must(db.client.StrLen(t.Context(), fmt.Sprint("large:", n)).Result()))
		}
	}
	compiled := must(engine.Compile("put", put))
	for n := range 20 {
		must(db.Run(compiled, nil, []string{fmt.Sprint(n), large(n)}))
	}
	check(db) // perhaps not in the file yet
	require.NoError(t, db.Sync())
	require.Zero(t, db.InMemory(), "bytes of large values")
	check(db)
	require.NoError(t, db.Rewrite())
	require.Zero(t, db.InMemory())
	check(db)
	reply := must(db.run(`return {redis.call('GET', 'large:7'), tostring(redis.call('STRLEN', 'large:7'))}`))
	require.Equal(t, []string{large(7), "48000"}, reply, "scripts read them, too")
	db.Abandon()
	again := open(t, dir)
	require.Zero(t, again.InMemory())
	check(again)
}

// While a rewrite goes on, scripts write, overwrite and delete; what is there
// afterwards, in memory and after a crash, is what they left.
func TestRewriteBesideWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	var writers sync.WaitGroup
	wants := make([]map[string]string, 3)
	for w := range wants {
		want := map[string]string{}
		wants[w] = want
		writers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 2))
			for range 150 {
				key := fmt.Sprintf("%d-%d", w, r.IntN(30))
				var err error
				switch value := large(r.IntN(1e6)); r.IntN(4) {
				case 0:
					_, err = db.run(`redis.write('DEL', 'v:' .. ARGV[1]) redis.write('ZREM', 'z', ARGV[1]) return {'ok'}`, key)
					delete(want, key)
				default:
					value = value[:r.IntN(len(value))]
					_, err = db.run(`redis.write('SET', 'v:' .. ARGV[1], ARGV[2]) redis.write('ZADD', 'z', #ARGV[2], ARGV[1]) return {'ok'}`, key, value)
					want[key] = value
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	rewrites := 0
	for running := true; running; rewrites++ {
		require.NoError(t, db.Rewrite())
		select {
		case <-done:
			running = false
		default:
		}
	}
	require.Greater(t, rewrites, 2)
	want := map[string]string{}
	for _, part := range wants {
		maps.Copy(want, part)
	}
	check := func(db *bench) {
		t.Helper()
		members := must(db.client.ZRangeWithScores(t.Context(), "z", 0, -1).Result())
		require.Len(t, members, len(want))
		for _, m := range members {
			key := m.Member.(string)
			require.Equal(t, len(want[key]), int(m.Score))
			require.True(t, want[key] == must(db.client.Get(t.Context(), "v:"+key).Result()), key)
		}
	}
	check(db)
	db.Abandon()
	again := open(t, dir)
	check(again)
	require.NoError(t, again.Rewrite())
	check(again)
}

// A rewrite that meets a failing disk gives up, and leaves nothing behind.
func TestRewriteOvertaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	for n := range 3 {
		run(t, db, put, n, large(n))
	}
	db.DoubtJournal()
	require.Error(t, db.Rewrite(), "the file is not to be trusted")
	run(t, db, push, "a") // starts over
	require.NoError(t, db.Rewrite())
	names := must(filepath.Glob(filepath.Join(dir, "*")))
	require.Len(t, names, 2, names)
	require.Equal(t, large(2), must(db.client.Get(t.Context(), "large:2").Result()))
}
