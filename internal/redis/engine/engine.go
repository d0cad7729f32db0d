package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// maintenance is how often the journal is synced for writes that nobody
	// waits for, and how often keys expire.
	maintenance = time.Second
	// expireAtOnce bounds the keys that go under one hold of the lock.
	expireAtOnce = 1000
)

// Engine is a Redis inside the process, safe for concurrent use.
type Engine struct {
	log  *slog.Logger
	lock *os.File

	// mu is held while one command or one script runs.
	mu      sync.Mutex
	keys    *keyspace
	lua     *interpreter
	journal *journal // nil without a folder
	hub     hub
	server  *evaluator // nil unless connections may send scripts

	stop chan struct{}
	done sync.WaitGroup
	once sync.Once
}

// Options of an Engine.
type Options struct {
	// Dir is the data folder, with the journal queue.aof and the lock that
	// keeps a second process out. Default: nothing is kept.
	Dir string
	// Logger gets what an operator should know. Default: nothing is logged.
	Logger *slog.Logger
	// Server takes scripts from connections and runs them as a Redis server does. RunID is
	// this start of it, in hex. Default: scripts come by Run only.
	Server bool
	RunID  string
	// Now is the clock, by which keys expire and scripts tell the time. Default: time.Now.
	Now func() time.Time
}

// Open starts an engine and restores it from the journal. It fails with
// ErrLocked when somebody else uses the folder.
func Open(o Options) (_ *Engine, err error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	e := &Engine{log: o.Logger, keys: newKeyspace(o.Now), stop: make(chan struct{})}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.lua = newInterpreter(e.doForScript)
	if o.Server {
		e.server = &evaluator{runID: o.RunID, scripts: map[string]*Script{}}
	}
	defer func() {
		if err != nil {
			e.abandon()
		}
	}()
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return nil, err
		}
		if e.lock, err = lockFolder(o.Dir); err != nil {
			return nil, err
		}
		if e.journal, err = openJournal(o.Dir, e); err != nil {
			return nil, err
		}
	}
	e.done.Go(e.maintain)
	return e, nil
}

// Run runs a script. What it wrote is in the journal as one block, also when
// it failed in the middle, because what it did until then has been done.
func (e *Engine) Run(s *Script, keys, args []string) ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.journal != nil {
		defer e.journal.commit()
	}
	if e.server != nil {
		e.server.changed = false
	}
	return e.lua.run(s, keys, args)
}

// doForScript does a command of the script that runs.
func (e *Engine) doForScript(args []string, write bool) (any, error) {
	switch name := strings.ToUpper(args[0]); {
	case name == "TIME":
		return timeOf(e.keys.now()), nil
	case name == "PUBLISH" && len(args) == 3:
		return e.hub.publish(args[1], args[2]), nil
	}
	if reply, ok, err := e.evaluate(args); ok {
		return reply, err
	}
	c, err := find(args)
	switch {
	case err != nil:
		return nil, err
	case e.server != nil:
		if write = c.write; write {
			if err := e.server.takes(args[0]); err != nil {
				return nil, err
			}
		}
	case c.write && !write:
		return nil, fmt.Errorf("ERR %s changes something: scripts use write() for it, so that it is kept", args[0])
	case !c.write && write:
		return nil, fmt.Errorf("ERR %s changes nothing that could be kept", args[0])
	}
	e.keys.fresh = e.keys.fresh[:0]
	reply, err := c.do(e.keys, args)
	if err == nil && write && e.journal != nil {
		e.journal.record(args, e.keys.fresh)
	}
	return reply, err
}

// do does a command of a connection.
func (e *Engine) do(args []string) (any, error) {
	c, err := find(args)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keys.fresh = e.keys.fresh[:0]
	return c.do(e.keys, args)
}

// Sync returns when all that scripts have written until now is on the disk.
func (e *Engine) Sync() error { return e.journaled((*journal).sync) }

// Usable fails while the journal cannot be written.
func (e *Engine) Usable() error { return e.journaled((*journal).usable) }

func (e *Engine) journaled(do func(*journal) error) error {
	if e.journal == nil {
		return nil
	}
	if err := do(e.journal); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// maintain does what is due every second.
func (e *Engine) maintain() {
	tick := time.NewTicker(maintenance)
	defer tick.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-tick.C:
		}
		e.expire()
		if e.journal == nil {
			continue
		}
		if err := e.journal.sync(); err != nil {
			e.log.Error("the journal of the queue cannot be written: new prompts are refused until it can", "error", err)
			continue
		}
		if err := e.journal.shorten(e.stop); err != nil {
			e.log.Warn("the journal of the queue cannot be shortened", "error", err)
		}
	}
}

// expire removes the keys whose time has come, a few under each hold of the
// lock.
func (e *Engine) expire() {
	for more := true; more; {
		e.mu.Lock()
		more = e.keys.expire(expireAtOnce)
		e.mu.Unlock()
	}
}

// Crash ends the engine as kill -9 does: what was not synced is lost.
func (e *Engine) Crash() {
	e.once.Do(func() {
		close(e.stop)
		e.done.Wait()
		e.abandon()
	})
}

// Close writes what is left to the journal and ends the engine. Connections
// are closed before.
func (e *Engine) Close() error {
	var err error
	e.once.Do(func() {
		close(e.stop)
		e.done.Wait()
		if e.journal != nil {
			err = e.journal.sync()
		}
		e.abandon()
	})
	return err
}

// abandon gives the folder back without another write.
func (e *Engine) abandon() {
	if e.journal != nil {
		e.journal.close()
	}
	if e.lock != nil {
		unlockFolder(e.lock)
	}
}

// ErrLocked says that another process, or another engine of this one, uses the
// data folder.
var ErrLocked = errors.New("the data folder is in use by another hub")
