package redis_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := redistest.OpenDir(t, dir)
	_, err := redis.Open(t.Context(), redis.Options{Dir: dir})
	require.ErrorIs(t, err, redis.ErrLocked)
	require.NoError(t, db.Close())
	again, err := redis.Open(t.Context(), redis.Options{Dir: dir})
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestEmbeddedRefusesWhatItCannotRepeat(t *testing.T) {
	t.Parallel()
	db := redistest.Embedded(t)
	for _, body := range []string{
		`write('EXPIRE', key('x'), 10)`, `write('SET', key('x'), 'y', 'EX', '10')`, `write('SETEX', key('x'), 10, 'y')`,
		`write('SPOP', key('s'))`, `write('XADD', key('stream'), '*', 'a', 'b')`, `write('PFADD', key('hll'), 'a')`,
	} {
		script := redis.NewScript("odd", redis.Write, `write('SET', key('x'), '1') write('SADD', key('s'), '1') `+body)
		_, err := db.Run(t.Context(), script)
		require.ErrorContains(t, err, "ERR ", body)
	}
}
