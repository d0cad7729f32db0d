package redis_test

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

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
		require.ErrorContains(t, err, "must not use", body)
	}
}

func TestPipe(t *testing.T) {
	t.Parallel()
	client, server := redis.Pipe()
	_, err := client.Write(bytes.Repeat([]byte("x"), 1<<20)) // nobody reads yet
	require.NoError(t, err)
	require.NoError(t, server.SetReadDeadline(time.Now().Add(-time.Second)))
	buf := make([]byte, 1<<20)
	n, err := io.ReadFull(server, buf)
	require.NoError(t, err, "what is there is read whatever the deadline")
	require.Equal(t, 1<<20, n)
	_, err = server.Read(buf)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, server.SetReadDeadline(time.Time{}))
	read := make(chan error)
	go func() { _, err := server.Read(buf); read <- err }()
	require.NoError(t, server.SetReadDeadline(time.Now()))
	require.ErrorIs(t, <-read, os.ErrDeadlineExceeded, "a deadline ends a read that waits")
	require.NoError(t, server.SetReadDeadline(time.Time{}))

	_, err = client.Write([]byte("last"))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	rest, err := io.ReadAll(server)
	require.NoError(t, err)
	require.Equal(t, "last", string(rest))
	_, err = server.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	_, err = client.Read(buf)
	require.ErrorIs(t, err, io.EOF)
}
