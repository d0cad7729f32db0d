package redis_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

func TestDeclaresKeys(t *testing.T) {
	t.Parallel()
	const library = "local function mark(k)\n  write('SET', key('mark', k), '1')\nend\nlocal function tick()\n  write('INCR', key('ticks'))\nend\n"
	for body, want := range map[string]bool{
		"return {}":           true,
		"return {int(now())}": true, // with key('clock')
		"return {key('a', ARGV[1]), key('b', 7)}": true,
		"tick() return {'ok'}":                    true,
		"mark('x') return {'ok'}":                 false,
		"return {key('a', ARGV[1] .. 'b')}":       false,
		"return {key('a', pack('x'))}":            false,
		"for i = 1, 2 do key('a', ARGV[i]) end":   false,
		"local name = key return {name('a')}":     false,
		"return {j.key, 'key', x_key('a')}":       true,
		"return {'ok'} -- not key(x)":             true,
	} {
		require.Equal(t, want, redis.NewScript("test", redis.Write, library, body).DeclaresKeys(), body)
	}
}

// The server inside the process checks as Dragonfly does.
func TestUndeclaredKeysAreRefused(t *testing.T) {
	t.Parallel()
	db := redistest.Embedded(t)
	declares := redis.NewScript("declares", redis.Write, `write('SET', key('a', ARGV[1]), '1') return {int(now()), redis.call('GET', key('a', ARGV[1]))}`)
	require.Equal(t, "1", must(db.Run(t.Context(), declares, 7))[1])

	sneaks := redis.NewScript("sneaks", redis.ReadOnly, `return {redis.call('GET', KEYS[1] .. ARGV[1])}`)
	require.True(t, sneaks.DeclaresKeys())
	require.ErrorContains(t, errOf(db.Run(t.Context(), sneaks, "x")), "undeclared key")
}
