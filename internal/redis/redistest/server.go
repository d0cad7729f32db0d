//go:build unix

package redistest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// patient are parameters of a URL. Waiting is left to who waits for the test: a
// process that gets no processor for two seconds, or waits for a slow disk, must
// not take Redis for away. One that is killed is away at once.
const patient = "?dial_timeout=1m&read_timeout=1m&write_timeout=1m&pool_timeout=1m"

// Server is a real Redis that a test can stop, kill, pause and start again. It
// keeps an append-only file. That is written before each reply, which is enough to
// outlive a kill of the process; syncing it would wait for the disk.
type Server struct {
	*programs.Program
	t    testing.TB
	dir  string
	addr string
}

// Start starts a server on a free port, empty; it is killed when the test
// ends. The test is skipped where there is no redis-server.
func Start(t testing.TB) *Server {
	t.Helper()
	path, dir := binary(t), t.TempDir()
	// Somebody else may take the port between our look and the server's.
	for range 10 {
		addr, err := freeport.Address()
		require.NoError(t, err)
		host, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		p, err := programs.Start(programs.Spec{Name: "redis", Path: path, Dir: dir, Args: []string{
			"--bind", host, "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", "no",
		}})
		require.NoError(t, err)
		t.Cleanup(p.Kill)
		if s := (&Server{p, t, dir, addr}); s.serves() {
			return s
		}
		p.Kill()
	}
	require.FailNow(t, "redis-server does not start")
	return nil
}

// Addr is the host and port.
func (s *Server) Addr() string { return s.addr }

// URL is what Options.URL takes. Who uses it is patient with a server that
// hangs.
func (s *Server) URL() string { return "redis://" + s.addr + patient }

// Start starts a server that was stopped, on its old port with its old data.
func (s *Server) Start() {
	s.t.Helper()
	require.NoError(s.t, s.Restart())
	require.True(s.t, s.serves(), "redis-server does not start again: %s", s.Log())
}

// Replica starts a server that copies this one, and waits until it has.
func (s *Server) Replica() *Server {
	s.t.Helper()
	host, port, err := net.SplitHostPort(s.addr)
	require.NoError(s.t, err)
	ctx, client := s.t.Context(), Open(s.t, s.URL()).Client()
	require.NoError(s.t, client.ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err())
	replica := Start(s.t)
	require.NoError(s.t, Open(s.t, replica.URL()).Client().SlaveOf(ctx, host, port).Err())
	require.NoError(s.t, s.Await(ctx, "the replica has copied the data", func(ctx context.Context) error {
		info, err := client.Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, "state=online") {
			err = errors.New("not yet")
		}
		return err
	}))
	return replica
}

// Promote makes a replica a master.
func (s *Server) Promote() {
	s.t.Helper()
	require.NoError(s.t, Open(s.t, s.URL()).Client().SlaveOf(s.t.Context(), "NO", "ONE").Err())
}

// Save copies the data as it is now. To call the result kills the server and starts
// it again with that copy: everything later is lost, as after a crash, or when a
// replica takes over that has not received it.
func (s *Server) Save() (rewind func()) {
	s.t.Helper()
	const data = "appendonlydir"
	saved := filepath.Join(s.t.TempDir(), data)
	require.NoError(s.t, os.CopyFS(saved, os.DirFS(filepath.Join(s.dir, data))))
	return func() {
		s.t.Helper()
		s.Kill()
		require.NoError(s.t, os.RemoveAll(filepath.Join(s.dir, data)))
		require.NoError(s.t, os.CopyFS(filepath.Join(s.dir, data), os.DirFS(saved)))
		s.Start()
	}
}

// serves waits until the server answers and has read its data, or has ended.
func (s *Server) serves() bool {
	db, err := redis.Open(s.t.Context(), redis.Options{URL: s.URL()})
	require.NoError(s.t, err)
	defer func() { _ = db.Close() }()
	real, err := filepath.EvalSymlinks(s.dir)
	require.NoError(s.t, err)
	return s.Await(s.t.Context(), "redis-server answers", func(ctx context.Context) error {
		// The port may be another server's: only ours knows our folder.
		dir, err := db.Client().ConfigGet(ctx, "dir").Result()
		if err == nil && dir["dir"] != real && dir["dir"] != s.dir {
			err = errors.New("another server is there")
		}
		if err != nil {
			return err
		}
		// CONFIG is answered while the data is being read, and nothing else is.
		return db.Client().DBSize(ctx).Err()
	}) == nil
}
