package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// words are what random commands are made of: few keys and members, so that
// they meet, and arguments that Redis refuses.
var words = struct{ keys, members, numbers []string }{
	keys:    []string{"a", "b", "c", "d"},
	members: []string{"x", "y", "z", "", "\x00\xff", "10", "9", strings.Repeat("far", 300)},
	numbers: []string{"0", "1", "-1", "2", "-3", "7", "100", "1.5", "-0.25", "inf", "-inf", "(1", "01", "+1", "x", "", "9223372036854775807", "1e3"},
}

// randomCommand makes a command of the engine's, mostly a right one.
func randomCommand(r *rand.Rand) []string {
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	key, member, number := func() string { return pick(words.keys) }, func() string { return pick(words.members) }, func() string { return pick(words.numbers) }
	small := func() string { return pick(words.numbers[:7]) }
	pairs := func(a, b func() string) (out []string) {
		for range 1 + r.IntN(3) {
			out = append(out, a(), b())
		}
		return out
	}
	score := func() string { return pick([]string{"1", "2", "2.5", "-1", "inf", "1e10", "0.1", "123456789012"}) }
	commands := []func() []string{
		func() []string { return []string{"SET", key(), member()} },
		func() []string { return []string{"SET", key(), number(), pick([]string{"NX", "XX", "nx"})} },
		func() []string { return []string{"GET", key()} },
		func() []string { return []string{"MGET", key(), key(), key()} },
		func() []string { return []string{"DEL", key(), key()} },
		func() []string { return []string{"EXISTS", key(), key()} },
		func() []string { return []string{"TYPE", key()} },
		func() []string { return []string{"STRLEN", key()} },
		func() []string { return []string{"INCR", key()} },
		func() []string { return []string{"INCRBY", key(), number()} },
		func() []string { return append([]string{"HSET", key()}, pairs(member, number)...) },
		func() []string { return append([]string{"HSET", key()}, pairs(member, member)...) },
		func() []string { return []string{"HGET", key(), member()} },
		func() []string { return []string{"HMGET", key(), member(), member()} },
		func() []string { return []string{"HGETALL", key()} },
		func() []string { return []string{"HKEYS", key()} },
		func() []string { return []string{"HDEL", key(), member(), member()} },
		func() []string { return []string{"HEXISTS", key(), member()} },
		func() []string { return []string{"HLEN", key()} },
		func() []string { return []string{"HINCRBY", key(), member(), number()} },
		func() []string { return []string{"RPUSH", key(), member(), member()} },
		func() []string { return []string{"LPUSH", key(), member(), member()} },
		func() []string { return []string{"LRANGE", key(), number(), number()} },
		func() []string { return []string{"LTRIM", key(), small(), small()} },
		func() []string { return []string{"LLEN", key()} },
		func() []string { return []string{"LINDEX", key(), number()} },
		func() []string { return []string{"SADD", key(), member(), member()} },
		func() []string { return []string{"SREM", key(), member(), member()} },
		func() []string { return []string{"SMEMBERS", key()} },
		func() []string { return []string{"SISMEMBER", key(), member()} },
		func() []string { return []string{"SCARD", key()} },
		func() []string { return append([]string{"ZADD", key()}, pairs(score, member)...) },
		func() []string { return append([]string{"ZADD", key()}, pairs(score, member)...) },
		func() []string {
			return append([]string{"ZADD", key(), pick([]string{"NX", "XX", "GT", "LT", "CH"}), pick([]string{"CH", "GT", "NX", "xx"})}, pairs(score, member)...)
		},
		func() []string { return append([]string{"ZADD", key()}, pairs(number, member)...) },
		func() []string { return []string{"ZREM", key(), member(), member()} },
		func() []string { return []string{"ZINCRBY", key(), score(), member()} },
		func() []string { return []string{"ZREMRANGEBYSCORE", key(), number(), number()} },
		func() []string { return []string{"ZREMRANGEBYRANK", key(), small(), small()} },
		func() []string { return []string{"ZSCORE", key(), member()} },
		func() []string { return []string{"ZRANK", key(), member()} },
		func() []string { return []string{"ZCARD", key()} },
		func() []string { return []string{"ZCOUNT", key(), number(), number()} },
		func() []string { return []string{"ZRANGE", key(), number(), number()} },
		func() []string { return []string{"ZRANGE", key(), small(), small(), "WITHSCORES"} },
		func() []string { return []string{"ZREVRANGE", key(), small(), small(), "withscores"} },
		func() []string { return []string{"ZRANGEBYSCORE", key(), number(), number()} },
		func() []string {
			return []string{"ZRANGEBYSCORE", key(), "-inf", "+inf", "WITHSCORES", "LIMIT", small(), small()}
		},
		func() []string { return []string{"PEXPIREAT", key(), pick([]string{"1", "4102444800000", "x"})} },
		func() []string { return []string{"GET"} },
		func() []string { return []string{"HSET", key(), member()} },
		func() []string { return []string{"ZADD", key(), "1"} },
	}
	return commands[r.IntN(len(commands))]()
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
		_, err := ours.run(body)
		require.Error(t, err, body)
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
