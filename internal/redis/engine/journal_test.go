package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

const aof = "queue.aof"

// push adds to a list and writes a second key beside it, so that half a block
// is seen.
const push = `
	redis.write('RPUSH', 'list', ARGV[1])
	redis.write('SET', 'last', ARGV[1])
	return {'ok'}`

func list(t *testing.T, db *bench) []string {
	values := must(db.client.LRange(t.Context(), "list", 0, -1).Result())
	last, err := db.client.Get(t.Context(), "last").Result()
	if len(values) == 0 {
		require.ErrorIs(t, err, goredis.Nil)
		return nil
	}
	require.NoError(t, err)
	require.Equal(t, values[len(values)-1], last, "a script is there whole or not at all")
	return values
}

func run(t *testing.T, db *bench, script string, args ...any) { must(db.run(script, args...)) }

// copyFolder opens a copy of a data folder, as it would be found after a
// crash, with the journal changed.
func openCopy(t *testing.T, journal []byte) *bench {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, aof), journal, 0o600))
	return open(t, dir)
}

var fill = `
	local now = tonumber(redis.call('TIME')[1]) * 1000
	redis.write('SET', 'string', ARGV[1])
	for i = 1, 300 do
		redis.write('HSET', 'hash', 'f' .. i, ARGV[1] .. i)
		redis.write('RPUSH', 'list', i)
		redis.write('SADD', 'set', i)
		redis.write('ZADD', 'zset', i / 4, 'm' .. i)
	end
	redis.write('SET', 'last', '300')
	redis.write('SET', 'soon', 'x')
	redis.write('PEXPIREAT', 'soon', string.format('%.0f', now + 3600000))
	redis.write('SET', 'past', 'x')
	redis.write('PEXPIREAT', 'past', string.format('%.0f', now - 1))
	redis.write('HDEL', 'hash', 'f1')
	redis.write('ZREM', 'zset', 'm1')
	return {'ok'}`

// contents gives all keys of a server with their values.
func contents(t *testing.T, c goredis.UniversalClient, prefix string) map[string]any {
	ctx := t.Context()
	keys := must(c.Keys(ctx, prefix+"*").Result())
	all := map[string]any{}
	for _, key := range keys {
		var value any
		switch kind := c.Type(ctx, key).Val(); kind {
		case "string":
			value = c.Get(ctx, key).Val()
		case "hash":
			value = c.HGetAll(ctx, key).Val()
		case "list":
			value = c.LRange(ctx, key, 0, -1).Val()
		case "set":
			members := c.SMembers(ctx, key).Val()
			slices.Sort(members)
			value = members
		case "zset":
			value = c.ZRangeWithScores(ctx, key, 0, -1).Val()
		default:
			require.Fail(t, "unexpected kind", kind)
		}
		all[key] = value
		if ttl := c.PTTL(ctx, key).Val(); ttl > 0 {
			all[key+" expires"] = ttl.Round(time.Minute)
		}
	}
	return all
}

func TestRestore(t *testing.T) {
	t.Parallel()
	binary := "\x00\r\n$5\r\n\xff*"
	for _, way := range []string{"close", "crash", "rewrite and crash"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			db := open(t, dir)
			run(t, db, fill, binary)
			db.Expire()
			want := contents(t, db.client, "")
			require.Len(t, want, 8)
			switch way {
			case "close":
				require.NoError(t, db.Close())
			case "crash":
				require.NoError(t, db.Sync())
				db.Abandon()
			default:
				require.NoError(t, db.Rewrite())
				run(t, db, push, "301") // after the cut
				want["list"] = append(want["list"].([]string), "301")
				want["last"] = "301"
				db.Abandon()
			}
			again := open(t, dir)
			again.Expire()
			require.Equal(t, want, contents(t, again.client, ""))
			run(t, again, push, "next")
		})
	}
}

// The journal is Redis's own format: a real server takes it.
func TestJournalLoadsIntoRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, rewrite := range []bool{false, true} {
		dir := t.TempDir()
		db := open(t, dir)
		run(t, db, fill, "\x00\xff")
		db.Expire()
		require.NoError(t, db.Sync())
		if rewrite {
			require.NoError(t, db.Rewrite())
		}
		data := must(os.ReadFile(filepath.Join(dir, aof)))

		client := goredis.NewClient(&goredis.Options{Addr: server.Addr(), Protocol: 2})
		t.Cleanup(func() { _ = client.Close() })
		require.NoError(t, client.FlushAll(t.Context()).Err())
		conn := must(net.Dial("tcp", server.Addr()))
		must(conn.Write(engine.AppendCommand(data, "QUIT")))
		require.NotContains(t, string(must(io.ReadAll(conn))), "-ERR")
		conn.Close()
		require.Equal(t, contents(t, db.client, ""), contents(t, client, ""))
	}
}

// However much of the last blocks reached the disk, whole blocks are there
// and nothing else.
func TestTornEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	var ends []int // sizes of the journal after each script
	for i := range 4 {
		run(t, db, push, i)
		info := must(os.Stat(filepath.Join(dir, aof)))
		ends = append(ends, int(info.Size()))
	}
	data := must(os.ReadFile(filepath.Join(dir, aof)))
	for _, zeros := range []int{0, 5} {
		for size := ends[1] - 1; size <= len(data); size++ {
			whole := 0
			for whole < len(ends) && ends[whole] <= size {
				whole++
			}
			crashed := openCopy(t, append(slices.Clone(data[:size]), make([]byte, zeros)...))
			require.Len(t, list(t, crashed), whole, "cut at %d of %d", size, len(data))
			run(t, crashed, push, "on")
			require.Len(t, list(t, crashed), whole+1)
			require.NoError(t, crashed.Close())
		}
	}
}

// TestKilled copies the journal at random moments, as a kill -9 would leave
// it, while scripts run and the journal is rewritten.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	var mu sync.Mutex
	var acknowledged []string
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 60 {
				value := fmt.Sprintf("%d-%d", w, i)
				if _, err := db.run(push, value); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acknowledged = append(acknowledged, value)
				mu.Unlock()
			}
		})
	}
	for i := range 12 {
		mu.Lock()
		before := slices.Clone(acknowledged)
		mu.Unlock()
		data := must(os.ReadFile(filepath.Join(dir, aof)))
		crashed := openCopy(t, data)
		require.Subset(t, append(list(t, crashed), "none"), append(before, "none"))
		require.NoError(t, crashed.Close())
		if i%3 == 2 {
			require.NoError(t, db.Rewrite())
		}
	}
	writers.Wait()
	require.NoError(t, db.Close())
	require.ElementsMatch(t, acknowledged, list(t, open(t, dir)))
}

// After a failed fsync only a new file is certain.
func TestDoubtfulFileIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	run(t, db, push, "a")
	require.NoError(t, os.WriteFile(filepath.Join(dir, aof), []byte("lost by the disk"), 0o600))
	db.DoubtJournal()
	run(t, db, push, "b")
	db.Abandon()
	require.Equal(t, []string{"a", "b"}, list(t, open(t, dir)))
}

// A script that fails in the middle has done what it did until then, as on a
// server of its own; the journal must know.
func TestFailedScriptIsInTheJournal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	half := `redis.write('RPUSH', 'list', 'x') redis.write('SET', 'last', 'x') redis.write('HSET', 'last', 'a', 'b') return {'ok'}`
	require.ErrorContains(t, errOf(db.run(half)), "WRONGTYPE")
	require.NoError(t, db.Sync())
	db.Abandon()
	require.Equal(t, []string{"x"}, list(t, open(t, dir)))
}

func TestJournalIsShortened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	big := `redis.write('SET', 'big', string.rep(ARGV[1], 1048576)) return {'ok'}`
	// Housekeeping may come at any point of this, also when 8 of 12 are written.
	var size int64
	require.Eventually(t, func() bool {
		if size < 12<<20 {
			run(t, db, big, strconv.Itoa(int(size>>20)%10))
		}
		info := must(os.Stat(filepath.Join(dir, aof)))
		before := size
		size = info.Size()
		return size < before
	}, 60*time.Second, time.Millisecond)
	run(t, db, push, "a")
	require.NoError(t, db.Close())
	require.Equal(t, []string{"a"}, list(t, open(t, dir)))
}

func FuzzReadCommands(f *testing.F) {
	f.Add(engine.AppendCommand(engine.AppendCommand(nil, "MULTI"), "SET", "a", "\r\n"))
	f.Add([]byte("*1\r\n$-1\r\n"))
	f.Add([]byte("*99999999999999999999\r\n"))
	f.Add([]byte("*1\r\n$536870912\r\nx"))
	f.Add([]byte("*0\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		commands, whole, err := engine.ReadCommands(bytes.NewReader(data))
		switch {
		case errors.Is(err, io.EOF):
			require.Len(t, data, int(whole))
		case !errors.Is(err, engine.ErrTorn) && !errors.Is(err, engine.ErrDamaged):
			t.Fatal(err)
		}
		// What was read is written the same, but for leading zeros.
		var out []byte
		for _, args := range commands {
			out = engine.AppendCommand(out, args...)
		}
		again, n, err := engine.ReadCommands(bytes.NewReader(out))
		require.ErrorIs(t, err, io.EOF)
		require.Len(t, out, int(n))
		require.Equal(t, commands, again)
	})
}
