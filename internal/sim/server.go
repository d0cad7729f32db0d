package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Server is a simulated ComfyUI instance. It is ready to serve when New returns,
// and safe for concurrent use.
//
// Many methods: one method for each thing that a test does to an instance or asks
// about it.
type Server struct {
	cfg     Config
	feat    features
	cat     *catalogue
	files   *folders
	ownsDir bool
	log     *slog.Logger
	routes  []route
	clock   Clock
	arrange func(outputs []string) []string

	started  atomic.Int64
	finished atomic.Int64

	mu     sync.Mutex
	proc   *process // nil while dead
	faults Faults
	runs   map[string]int // starts by prompt id
	closed bool
	timers []*time.Timer
}

// New returns a running instance. The error reports a bad field of cfg or a folder
// that cannot be created.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	v, err := parseVersion(cfg.Version)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, feat: v.features(), faults: cfg.Faults, runs: map[string]int{},
		log:   cfg.Logger.With("instance", cfg.Name),
		clock: cfg.Clock, arrange: cfg.ArrangeOutputs,
	}
	if s.cat, err = newCatalogue(cfg, s.feat); err != nil {
		return nil, err
	}
	if cfg.Dir == "" {
		if s.cfg.Dir, err = os.MkdirTemp("", "comfyui-sim-*"); err != nil {
			return nil, fmt.Errorf("sim: make a folder: %w", err)
		}
		s.ownsDir = true
	}
	if s.files, err = newFolders(s.cfg.Dir, s.feat); err != nil {
		s.removeDir()
		return nil, err
	}
	s.files.dated = s.cfg.DateBasedOutput
	s.cat.disk = s.files
	s.routes = s.table()
	s.proc = newProcess(s)
	return s, nil
}

// Dir returns the base folder of the instance, which contains input, output, temp
// and user.
func (s *Server) Dir() string { return s.cfg.Dir }

// Handler returns the instance's HTTP and WebSocket interface.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// ListenAndServe serves on addr ("host:port") until ctx ends; it then returns
// nil. A killed instance keeps its port but cuts each connection.
func (s *Server) ListenAndServe(ctx context.Context, addr string) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	return s.Serve(ctx, ln)
}

// Serve is ListenAndServe with a listener, which it closes.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	s.log.Info("simulated ComfyUI listens", "addr", ln.Addr().String(), "version", s.cfg.Version)
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("sim: %w", err)
	}
	return nil
}

// Close ends the instance: sockets are cut, the run is abandoned and a temporary
// folder is removed. Afterwards the instance answers like a dead one.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, t := range s.timers {
		t.Stop()
	}
	s.mu.Unlock()
	s.Kill()
	s.removeDir()
}

func (s *Server) removeDir() {
	if s.ownsDir {
		_ = os.RemoveAll(s.cfg.Dir)
	}
}

// Kill ends the process the way SIGKILL does. All connections are cut, and so are
// new ones until Restart. Queue, history, counter and caches are gone.
func (s *Server) Kill() {
	s.mu.Lock()
	p := s.proc
	s.proc = nil
	s.mu.Unlock()
	if p != nil {
		p.stop()
		s.log.Info("killed")
	}
}

// Restart restarts the process, killing it first if it is alive. The temp folder is
// emptied, and a Zombie or Mute fault is cleared.
func (s *Server) Restart() {
	s.Kill()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.faults.Zombie, s.faults.Mute = false, false
	if err := s.files.clearTemp(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("temp folder not emptied", "err", err)
	}
	s.proc = newProcess(s)
	s.log.Info("started")
}

// Silence gives the instance a dead worker: HTTP and sockets answer and prompts
// are accepted, but nothing runs any more. Only Restart helps.
func (s *Server) Silence() {
	s.mu.Lock()
	s.faults.Zombie = true
	p := s.proc
	s.mu.Unlock()
	if p != nil {
		p.halt()
	}
}

// DropSockets cuts all WebSocket connections; the process continues.
func (s *Server) DropSockets() {
	if p := s.process(); p != nil {
		p.hub.dropAll()
	}
}

// Listens reports whether a client with this id would be sent a message. One whose socket
// ComfyUI has silenced would not.
func (s *Server) Listens(sid string) bool {
	p := s.process()
	if p == nil {
		return false
	}
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	return p.hub.sockets[sid] != nil
}

// SetFault replaces the current faults. A Zombie stays one until Restart.
func (s *Server) SetFault(f Faults) {
	s.mu.Lock()
	s.faults = f
	s.mu.Unlock()
	if f.Zombie {
		s.Silence()
	}
}

// Fault returns the current faults.
func (s *Server) Fault() Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// Alive reports whether the process is alive.
func (s *Server) Alive() bool { return s.process() != nil }

// Started returns the number of runs started since New, across restarts.
func (s *Server) Started() int { return int(s.started.Load()) }

// Finished returns the number of runs that ended, successfully or not, since New.
func (s *Server) Finished() int { return int(s.finished.Load()) }

// Runs returns how often each prompt id was started since New, so that a test
// can tell that none ran twice.
func (s *Server) Runs() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]int, len(s.runs))
	maps.Copy(out, s.runs)
	return out
}

// Quiet reports whether all messages have been sent and no prompt can make progress
// before the clock moves. asleep is the number of its steps that wait for the
// clock.
func (s *Server) Quiet(asleep int) bool {
	p := s.process()
	if p == nil {
		return true
	}
	p.hub.mu.Lock()
	unsent := len(p.hub.outbox)
	p.hub.mu.Unlock()
	return unsent == 0 && (asleep > 0 || p.queue.remaining() == 0)
}

// Remaining returns the number of prompts that are waiting or running.
func (s *Server) Remaining() int {
	if p := s.process(); p != nil {
		return p.queue.remaining()
	}
	return 0
}

func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// scaled converts a simulated duration to a real one.
func (s *Server) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * s.cfg.TimeScale)
}

// crash is the effect of a SimulatedWork node with fail=crash.
func (s *Server) crash() {
	if s.cfg.OnCrash != nil {
		go s.cfg.OnCrash(s)
		return
	}
	go s.Kill()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.timers = append(s.timers, time.AfterFunc(s.scaled(time.Second), s.Restart))
	}
}
