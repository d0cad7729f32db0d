package engine_test

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
)

func TestPipe(t *testing.T) {
	t.Parallel()
	client, server := engine.Pipe()
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
