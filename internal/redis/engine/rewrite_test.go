package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
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
		for n := range 20 {
			want := large(n)
			got := must(db.client.Get(t.Context(), fmt.Sprint("large:", n)).Result())
			require.True(t, want == got, n)
			got = must(db.client.HGet(t.Context(), "hash", fmt.Sprint(n)).Result())
			require.True(t, want == got, n)
			require.EqualValues(t, len(want), must(db.client.StrLen(t.Context(), fmt.Sprint("large:", n)).Result()))
		}
	}
	compiled := must(engine.Compile("put", engine.Undeclared+put))
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

// words are what random commands are made of: few keys and members, so that they meet, and arguments that
// Redis refuses.
var words = map[string][]string{
	"key":    {"a", "b", "c", "d"},
	"member": {"x", "y", "z", "", "\x00\xff", "10", "9", strings.Repeat("far", 300)},
	"number": {"0", "1", "-1", "2", "-3", "7", "100", "1.5", "-0.25", "inf", "-inf", "(1", "01", "+1", "x", "", "9223372036854775807", "1e3"},
	"small":  {"0", "1", "-1", "2", "-3", "7", "100"},
	"score":  {"1", "2", "2.5", "-1", "inf", "1e10", "0.1", "123456789012"},
	"flag":   {"NX", "XX", "nx", "GT", "LT", "CH"},
	"time":   {"1", "4102444800000", "x"},
}

// commands are the engine's, mostly right ones. What begins with a star comes one to three times.
var commands = strings.Split(`SET key member|SET key number flag|GET key|MGET key key key|DEL key key|EXISTS key key|TYPE key|STRLEN key|
INCR key|INCRBY key number|HSET key *member,number|HSET key *member,member|HGET key member|HMGET key member member|HGETALL key|HKEYS key|
HDEL key member member|HEXISTS key member|HLEN key|HINCRBY key member number|RPUSH key member member|LPUSH key member member|
LRANGE key number number|LTRIM key small small|LLEN key|LINDEX key number|SADD key member member|SREM key member member|SMEMBERS key|
SISMEMBER key member|SCARD key|ZADD key *score,member|ZADD key *score,member|ZADD key flag flag *score,member|ZADD key *number,member|
ZREM key member member|ZINCRBY key score member|ZREMRANGEBYSCORE key number number|ZREMRANGEBYRANK key small small|ZSCORE key member|
ZRANK key member|ZCARD key|ZCOUNT key number number|ZRANGE key number number|ZRANGE key small small WITHSCORES|
ZREVRANGE key small small withscores|ZRANGEBYSCORE key number number|ZRANGEBYSCORE key -inf +inf WITHSCORES LIMIT small small|
PEXPIREAT key time|GET|HSET key member|ZADD key 1`, "|")

// randomCommand makes a command of random words.
func randomCommand(r *rand.Rand) (args []string) {
	for word := range strings.FieldsSeq(commands[r.IntN(len(commands))]) {
		times, list := 1, strings.TrimPrefix(word, "*")
		if list != word {
			times += r.IntN(3)
		}
		for range times {
			for one := range strings.SplitSeq(list, ",") {
				if from := words[one]; from != nil {
					one = from[r.IntN(len(from))]
				}
				args = append(args, one)
			}
		}
	}
	return args
}

// comparable makes replies equal that mean the same: lists without an order,
// and scores, which servers before 7.2 write with 17 digits.
func comparable(name string, reply any) any {
	if text, isText := reply.(string); isText && name[0] == 'Z' && strings.ContainsAny(text, ".e") {
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return f
		}
	}
	list, isList := reply.([]any)
	if !isList {
		return reply
	}
	if name[0] == 'Z' {
		for i, item := range list {
			list[i] = comparable(name, item)
		}
	}
	switch name {
	case "SMEMBERS", "HKEYS":
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	case "HGETALL":
		fields := map[any]any{}
		for i := 0; i+1 < len(list); i += 2 {
			fields[list[i]] = list[i+1]
		}
		return fields
	}
	return list
}

// Every command answers as a real server does, and leaves the same behind.
func TestSameAsAServer(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Addr: redistest.Start(t).Addr(), Protocol: 2, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	for seed := range 40 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		require.NoError(t, client.FlushAll(t.Context()).Err())
		ours := open(t, "")
		var said []string
		for range 250 {
			args := randomCommand(r)
			asked := make([]any, len(args))
			for i, arg := range args {
				asked[i] = arg
			}
			want, wantErr := client.Do(t.Context(), asked...).Result()
			got, gotErr := ours.client.Do(t.Context(), asked...).Result()
			said = append(said, fmt.Sprintf("%.60q", args))
			trail := strings.Join(said[max(0, len(said)-30):], "\n")
			if errors.Is(wantErr, goredis.Nil) || wantErr == nil {
				require.Equal(t, wantErr, gotErr, "seed %d:\n%s", seed, trail)
				require.Equal(t, comparable(args[0], want), comparable(args[0], got), "seed %d:\n%s", seed, trail)
			} else {
				require.Error(t, gotErr, "seed %d: a server says %v\n%s", seed, wantErr, trail)
				require.Equal(t, firstWord(wantErr), firstWord(gotErr), "seed %d: %v, %v\n%s", seed, wantErr, gotErr, trail)
			}
		}
		require.Equal(t, contents(t, client, ""), contents(t, ours.client, ""), "seed %d", seed)
	}
}

func firstWord(err error) string { word, _, _ := strings.Cut(err.Error(), " "); return word }

// Scripts see values as on a real server: what is nothing, a number, a list.
func TestScriptsSeeTheSame(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Addr: redistest.Start(t).Addr(), Protocol: 2, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	ours := open(t, "")
	for _, body := range []string{
		`return {tostring(redis.call('GET', 'none'))}`,
		`write('SET', 'n', 5) return {type(redis.call('GET', 'n')), tostring(redis.call('GET', 'n') + 1)}`,
		`return {tostring(write('SET', 'n', 1).ok), type(write('INCRBY', 'n', 3)), tostring(write('INCRBY', 'n', 3))}`,
		`write('HSET', 'h', 'a', 1.5, 'b', 1e15, 'c', 3.0, 'd', -0.1) return redis.call('HMGET', 'h', 'a', 'b', 'c', 'd')`,
		`write('ZADD', 'z', 1, 'a', 2.5, 'b', 1e20, 'c') return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')`,
		`return {tostring(redis.call('ZSCORE', 'z', 'a')), tostring(redis.call('HGET', 'h', 'zz')), tostring(#redis.call('HGETALL', 'none'))}`,
		`local t = {} for i = 1, 3000 do t[i] = i end write('RPUSH', 'l', unpack(t)) return {tostring(#redis.call('LRANGE', 'l', 0, -1))}`,
		`return {tostring(#ARGV[1]), ARGV[1]}`,
		`local ok, err = pcall(redis.call, 'GET', 'z') return {tostring(ok), string.find(tostring(err.err or err), 'WRONGTYPE') and 'wrong' or tostring(err)}`,
		`return {string.format('%.0f', 12345678901234), tostring(math.floor(-1.5)), string.rep('x', 3)}`,
	} {
		want, err := client.Eval(t.Context(), "local write = redis.call "+body, []string{"key"}, "\x00\xff").StringSlice()
		require.NoError(t, err, body)
		got, err := ours.run("local write = redis.write "+body, "\x00\xff")
		require.NoError(t, err, body)
		require.Equal(t, want, got, body)
	}
	for _, body := range []string{"return redis.call('NOPE')", "return redis.call()", "return {{}}", "return 5", "error('x')", "return redis.call('SET', 'a', 'b')", "return redis.write('GET', 'a')", "return dofile('x')", "syntax"} {
		require.Error(t, errOf(ours.run(body)), body)
	}
}

// ZLEXCOUNT needs members of one score, so it has commands of its own.
func TestCountsMembersAsAServer(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Addr: redistest.Start(t).Addr(), Protocol: 2, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	ours := open(t, "")
	bounds := []string{"-", "+", "[", "(", "[a", "(a", "[aa", "(b", "[b\x00", "(~", "[+", "x", ""}
	for _, members := range [][]string{nil, {"a"}, {"", "a", "aa", "b", "b\x00", "c", "+1", "~1", "\xff"}} {
		for _, member := range members {
			require.NoError(t, client.ZAdd(t.Context(), "z", goredis.Z{Score: 3, Member: member}).Err())
			require.NoError(t, ours.client.ZAdd(t.Context(), "z", goredis.Z{Score: 3, Member: member}).Err())
		}
		for _, from := range bounds {
			for _, to := range bounds {
				want, wantErr := client.ZLexCount(t.Context(), "z", from, to).Result()
				got, gotErr := ours.client.ZLexCount(t.Context(), "z", from, to).Result()
				require.Equal(t, want, got, "%q %q", from, to)
				require.Equal(t, wantErr == nil, gotErr == nil, "%q %q: %v, %v", from, to, wantErr, gotErr)
			}
		}
	}
}
