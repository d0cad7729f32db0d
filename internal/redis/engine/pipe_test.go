package engine_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
)

func TestPipe(t *testing.T) {
	t.Parallel()
	client, server := engine.Pipe()
	must(client.Write(bytes.Repeat([]byte("x"), 1<<20))) // nobody reads yet
	require.NoError(t, server.SetReadDeadline(time.Now().Add(-time.Second)))
	buf := make([]byte, 1<<20)
	n, err := io.ReadFull(server, buf)
	require.NoError(t, err, "what is there is read whatever the deadline")
	require.Equal(t, 1<<20, n)
	require.ErrorIs(t, errOf(server.Read(buf)), os.ErrDeadlineExceeded)
	require.NoError(t, server.SetReadDeadline(time.Time{}))
	read := make(chan error)
	go func() { _, err := server.Read(buf); read <- err }()
	require.NoError(t, server.SetReadDeadline(time.Now()))
	require.ErrorIs(t, <-read, os.ErrDeadlineExceeded, "a deadline ends a read that waits")
	require.NoError(t, server.SetReadDeadline(time.Time{}))

	must(client.Write([]byte("last")))
	require.NoError(t, client.Close())
	require.Equal(t, "last", string(must(io.ReadAll(server))))
	require.ErrorIs(t, errOf(server.Write([]byte("x"))), io.ErrClosedPipe)
	require.ErrorIs(t, errOf(client.Read(buf)), io.EOF)
}

// bench is an engine with a client.
type bench struct {
	*engine.Engine
	client goredis.UniversalClient
}

// open starts an engine in a folder; "" keeps nothing. It ends with the test.
func open(t testing.TB, dir string) *bench {
	t.Helper()
	e := must(engine.Open(engine.Options{Dir: dir}))
	b := &bench{Engine: e, client: goredis.NewClient(&goredis.Options{Dialer: e.Dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1})}
	t.Cleanup(func() {
		_ = b.client.Close()
		require.NoError(t, e.Close())
	})
	return b
}

// run runs a script and waits until it is on the disk.
func (b *bench) run(script string, args ...any) ([]string, error) {
	compiled, err := engine.Compile("test", script)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(args))
	for i, arg := range args {
		texts[i] = fmt.Sprint(arg)
	}
	if err := b.Usable(); err != nil {
		return nil, err
	}
	reply, err := b.Run(compiled, nil, texts)
	if syncErr := b.Sync(); syncErr != nil {
		return nil, syncErr
	}
	return reply, err
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
