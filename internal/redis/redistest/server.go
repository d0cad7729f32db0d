//go:build unix

package redistest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/freeport"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// startWithin bounds the start of a server, also on a loaded machine.
const startWithin = 30 * time.Second

// patient are parameters of a URL. Waiting is left to who waits for the test: a
// process that gets no processor for two seconds, or waits for a slow disk, must
// not take Redis for away. One that is killed is away at once.
const patient = "?dial_timeout=1m&read_timeout=1m&write_timeout=1m&pool_timeout=1m"

// Server is a real Redis that a test can stop, kill and start again. It keeps
// an append-only file. That is written before each reply, which is enough to
// outlive a kill of the process; syncing it would wait for the disk.
type Server struct {
	t    testing.TB
	path string
	dir  string
	addr string

	process *os.Process   // nil when stopped
	exited  chan struct{} // closed when the process has ended
}

// Start starts a server on a free port, empty; it is killed when the test
// ends. The test is skipped where there is no redis-server.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, path: binary(t), dir: t.TempDir()}
	t.Cleanup(s.Kill)
	// Somebody else may take the port between our look and the server's.
	for range 10 {
		var err error
		s.addr, err = freeport.Address()
		require.NoError(t, err)
		if s.launch() {
			return s
		}
	}
	require.FailNow(t, "redis-server does not start", "log: %s", s.log())
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
	require.True(s.t, s.launch(), "redis-server does not start again: %s", s.log())
}

// Stop ends the server in good order.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// Kill ends the server at once, as a crash does.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Freeze makes the server hang, until Thaw: connections stay, nothing is
// answered.
func (s *Server) Freeze() { require.NoError(s.t, s.process.Signal(syscall.SIGSTOP)) }

// Thaw ends a Freeze.
func (s *Server) Thaw() { require.NoError(s.t, s.process.Signal(syscall.SIGCONT)) }

func (s *Server) end(signal syscall.Signal) {
	if s.process == nil {
		return
	}
	_ = s.process.Signal(signal)
	_ = s.process.Signal(syscall.SIGCONT) // a frozen one cannot end
	<-s.exited
	s.process = nil
}

// launch starts the process and reports whether it serves.
func (s *Server) launch() bool {
	host, port, err := net.SplitHostPort(s.addr)
	require.NoError(s.t, err)
	cmd := exec.Command(s.path, "--bind", host, "--port", port, "--dir", s.dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "no", "--logfile", filepath.Join(s.dir, "log"))
	cmd.SysProcAttr = dieWithParent()
	require.NoError(s.t, cmd.Start())
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait()
	}()
	s.process, s.exited = cmd.Process, exited
	if s.serves() {
		return true
	}
	s.Kill()
	return false
}

// serves waits until the server answers, or has ended.
func (s *Server) serves() bool {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	db, err := redis.Open(ctx, redis.Options{URL: s.URL()})
	require.NoError(s.t, err)
	defer func() { _ = db.Close() }()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		// The port may be another server's: only ours knows our folder.
		if dir, err := db.Client().ConfigGet(ctx, "dir").Result(); err == nil {
			real, err := filepath.EvalSymlinks(s.dir)
			require.NoError(s.t, err)
			return dir["dir"] == real || dir["dir"] == s.dir
		}
		select {
		case <-s.exited:
			return false
		case <-ctx.Done():
			return false
		case <-poll.C:
		}
	}
}

func (s *Server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(text)
}
