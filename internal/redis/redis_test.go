package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// add counts calls: a script that runs twice is seen.
func addScript(mode redis.Mode) *redis.Script {
	return redis.NewScript("add", mode, `return {'ok', int(write('INCRBY', key('n'), ARGV[1]))}`)
}

func TestScripts(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		ctx := t.Context()
		for _, mode := range []redis.Mode{redis.Write, redis.Durable} {
			reply := must(db.Run(ctx, addScript(mode), 2))
			require.Equal(t, "ok", reply[0])
		}
		n := must(db.Client().Get(ctx, db.Key("n")).Int())
		require.Equal(t, 4, n)

		library := `local function twice(s) return s .. s end`
		body := `return {twice(ARGV[1]), int(1755907200123), key('a', 'b'), pack('x', '', 'a:b'), now() > 1.7e12 and 'clock' or ''}`
		reply := must(db.Run(ctx, redis.NewScript("names", redis.ReadOnly, library, body), "ab"))
		require.Equal(t, []string{"abab", "1755907200123", db.Key("a", "b"), redis.Pack("x", "", "a:b"), "clock"}, reply)

		// In the embedded server these are written in Go.
		body = `return {int(0), int(-7), int(2.5), int(3.5), int(2^53), int(1e17), int(-1e300), key(), key('', 5), key('a'), key('a', 'b', 'c'), key(1, 2, 3, 4, 5), pack(), pack('\255', ''), pack('ab', 'cd')}`
		reply = must(db.Run(ctx, redis.NewScript("texts", redis.ReadOnly, body)))
		require.Equal(t, []string{
			"0", "-7", "2", "4", "9007199254740992", "100000000000000000", fmt.Sprintf("%.0f", -1e300), db.Key(), db.Key("", "5"), db.Key("a"),
			db.Key("a", "b", "c"), db.Key("1", "2", "3", "4", "5"), "", redis.Pack("\xff", ""), redis.Pack("ab", "cd"),
		}, reply)

		_, err := db.Run(ctx, redis.NewScript("broken", redis.Write, `error('no')`))
		require.ErrorContains(t, err, "script broken")
		require.NotErrorIs(t, err, redis.ErrUnavailable, "a script's own fault is not Redis's")
	})
}

func TestBinaryRepliesAreRemembered(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		echo := redis.NewScript("echo", redis.Write,
			`local out = {'ok'} for i = 1, 2500 do out[#out + 1] = ARGV[1] end write('SET', key('x'), ARGV[1]) return out`)
		reply := must(db.Run(t.Context(), echo, all))
		require.Len(t, reply, 2501)
		require.Equal(t, string(all), reply[2500])
		require.Equal(t, string(all), must(db.Client().Get(t.Context(), db.Key("x")).Result()))
	})
}

func TestUnknownScriptIsSentAgain(t *testing.T) {
	t.Parallel()
	db := redistest.Open(t, redistest.Start(t).URL())
	for want := range 3 {
		require.NoError(t, db.Client().ScriptFlush(t.Context()).Err())
		require.Equal(t, strconv.Itoa(want+1), must(db.Run(t.Context(), addScript(redis.Write), 1))[1])
	}
}

// Both kinds of server are reached over TCP here: miniredis stands in where
// there is no redis-server.
func TestLostReplyRunsOnce(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, addr string) {
		var armed atomic.Bool
		proxy := redistest.NewProxy(t, addr, func() bool { return armed.CompareAndSwap(true, false) })
		db := redistest.Open(t, proxy.URL())
		add := addScript(redis.Write)
		for want := range 20 {
			if want > 0 { // the first connection is made in peace
				armed.Store(true)
			}
			reply := must(db.Run(t.Context(), add, 1))
			require.Equal(t, []string{"ok", strconv.Itoa(want + 1)}, reply)
		}
		require.GreaterOrEqual(t, proxy.Lost(), 19)

		// The second time the reply comes from where it was stored.
		binary := "\x00\r\n\xff1:2"
		for _, items := range []int{0, 1, 2500} {
			want := make([]string, items)
			for n := range want {
				want[n] = []string{binary, "", "12:"}[n%3]
			}
			armed.Store(true)
			reply := must(db.Run(t.Context(), redis.NewScript("binary", redis.Write, `local out = {}
				for i = 1, tonumber(ARGV[1]) do out[i] = ({ARGV[2], '', '12:'})[(i - 1) % 3 + 1] end
				write('INCRBY', key('runs'), 1)
				return out`), items, binary))
			require.Equal(t, want, append([]string{}, reply...))
		}
		runs := must(db.Client().Get(t.Context(), db.Key("runs")).Int())
		require.Equal(t, 3, runs)
	}
	t.Run("miniredis", func(t *testing.T) { t.Parallel(); test(t, miniredis.RunT(t).Addr()) })
	t.Run("server", func(t *testing.T) { t.Parallel(); test(t, redistest.Start(t).Addr()) })
}

func TestHungServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	db := redistest.Open(t, "redis://"+server.Addr()) // with the timeouts of a hub
	require.NoError(t, db.Ping(t.Context()))
	server.Pause()
	t.Cleanup(server.Resume)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, errOf(db.Run(ctx, addScript(redis.Write), 1)), redis.ErrUnavailable)
	require.Error(t, ctx.Err())

	// Without a deadline of the caller's the connection's own one counts.
	require.ErrorIs(t, errOf(db.Run(context.WithoutCancel(t.Context()), addScript(redis.Write), 1)), redis.ErrUnavailable)

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := db.Run(gone, addScript(redis.Write), 1)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, redis.ErrUnavailable, "the caller left, not Redis")
}

func TestAwayAtStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	db := redistest.Open(t, server.URL())
	require.ErrorIs(t, db.Ping(t.Context()), redis.ErrUnavailable)
	require.ErrorIs(t, errOf(db.Run(t.Context(), addScript(redis.Write), 1)), redis.ErrUnavailable)
	require.ErrorIs(t, errOf(db.Warnings(t.Context())), redis.ErrUnavailable)
	server.Start()
	require.Eventually(t, func() bool {
		_, err := db.Run(t.Context(), addScript(redis.Write), 1)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

func TestAwayReplies(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	db := redistest.Open(t, "redis://"+server.Addr())
	require.NoError(t, db.Ping(t.Context()))
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory",
		"READONLY You can't write against a read only replica.",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"ERR Error running script: -OOM command not allowed",
		"MISCONF Redis is configured to save RDB snapshots",
		"ERR Error running script: @user_script: 62: The user executing the script can't publish to the channel",
	} {
		server.SetError(text)
		require.ErrorIs(t, errOf(db.Client().Get(t.Context(), "x").Result()), redis.ErrUnavailable, text)
		_, err := db.Client().Pipelined(t.Context(), func(p redis.Pipeliner) error { p.Get(t.Context(), "x"); return nil })
		require.ErrorIs(t, err, redis.ErrUnavailable, text)
	}
	server.SetError("ERR something else")
	require.NotErrorIs(t, db.Client().Get(t.Context(), "x").Err(), redis.ErrUnavailable)
	server.SetError("")
	require.ErrorIs(t, db.Client().Get(t.Context(), "x").Err(), redis.Nil)
}

func TestSubscribe(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		notices := db.Subscribe(ctx, db.Key("news"))
		require.Equal(t, redis.Notice{Resync: true}, <-notices)
		say := redis.NewScript("say", redis.Write, `redis.call('PUBLISH', key('news'), ARGV[1]) return {'ok'}`)
		for i := range 3 {
			must(db.Run(ctx, say, i))
			require.Equal(t, redis.Notice{Payload: strconv.Itoa(i)}, <-notices)
		}
		cancel()
		for range notices { // ends
		}
	})
}

// A subscriber that does not read must not stop the server, which publishes
// under its lock, and learns that it missed something.
func TestLazySubscriber(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		notices := db.Subscribe(t.Context(), db.Key("news"))
		require.True(t, (<-notices).Resync)
		shout := redis.NewScript("shout", redis.Write,
			`for i = 1, 5000 do redis.call('PUBLISH', key('news'), i) end return {'ok'}`)
		must(db.Run(t.Context(), shout))
		require.NoError(t, db.Ping(t.Context()))
		for n := 0; ; n++ {
			if notice := <-notices; notice.Resync {
				require.Less(t, n, 5000)
				break
			}
			require.Less(t, n, 5000, "messages were lost and nobody told")
			if n == 4999 {
				break // all came through
			}
		}
	})
}

func TestLongPipeline(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) {
		set := redis.NewScript("set", redis.Write, `write('SET', key('x'), string.rep('x', 10000)) return {'ok'}`)
		must(db.Run(t.Context(), set))
		cmds := must(db.Client().Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range 500 {
				p.Get(t.Context(), db.Key("x"))
			}
			return nil
		}))
		require.Len(t, cmds, 500)
	})
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	db := redistest.Open(t, server.URL())
	warnings := must(db.Warnings(t.Context()))
	require.Empty(t, warnings)
	require.NoError(t, db.Client().ConfigSet(t.Context(), "appendonly", "no").Err())
	require.NoError(t, db.Client().ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	require.NoError(t, db.Client().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	warnings = must(db.Warnings(t.Context()))
	require.Len(t, warnings, 3)
	require.Contains(t, warnings[2], "maxmemory 100 MiB, less than 256 MiB")
}

// Without INFO the hub cannot see that Redis was replaced, and must say so.
func TestWarnsWithoutInfo(t *testing.T) {
	t.Parallel()
	db := redistest.Open(t, redistest.Start(t).URL())
	require.NoError(t, db.Client().Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err())
	require.Empty(t, must(db.Incarnation(t.Context())))
	warnings := must(db.Warnings(t.Context()))
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "allow the user +info")
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"nonsense", "http://x:1", "redis+odd://x:1", "redis+sentinel://x:1", "unix+cluster://x"} {
		require.Error(t, errOf(redis.Open(t.Context(), redis.Options{URL: url})), url)
	}
	_, err := redis.Open(t.Context(), redis.Options{URL: "redis://user:hush@host:notaport"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hush")
	require.Error(t, errOf(redis.Open(t.Context(), redis.Options{Prefix: "a{b"})))
	for _, url := range []string{
		"redis://:pw@h:1/2", "rediss://h:1", "unix:///tmp/x.sock",
		"redis+sentinel://:pw@h1:1,h2:2/main/3", "rediss+cluster://u:p@h1:1,h2:2,h3:3",
	} {
		db, err := redis.Open(t.Context(), redis.Options{URL: url})
		require.NoError(t, err, url)
		require.NoError(t, db.Close())
	}
}

func TestPack(t *testing.T) {
	t.Parallel()
	for _, parts := range [][]string{nil, {""}, {"a"}, {"", ""}, {"1:a", ":", "\x00\xff"}} {
		got, ok := redis.Unpack(redis.Pack(parts...))
		require.True(t, ok)
		require.Equal(t, parts, got)
	}
	for _, bad := range []string{"x", "1:", "01:a", "-1:", "2:a", "1a", ":"} {
		_, ok := redis.Unpack(bad)
		require.False(t, ok, bad)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(redis.Pack("a", "", "b:c"))
	f.Add("01:a")
	f.Fuzz(func(t *testing.T, packed string) {
		if parts, ok := redis.Unpack(packed); ok && redis.Pack(parts...) != packed {
			t.Fatalf("%q unpacks to %q", packed, parts)
		}
	})
}

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errOf returns the error of a call alone.
func errOf[T any](_ T, err error) error { return err }
