package redis

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	goredis "github.com/redis/go-redis/v9"
)

// ErrLocked means that another process, or another DB of this one, is using the
// data folder.
var ErrLocked = errors.New("the data folder is in use by another hub")

const (
	journalFile = "queue.aof"
	lockFile    = "queue.lock"
	// maintenanceInterval is how often the journal is synced for writes that nobody
	// waits for, and how often keys expire.
	maintenanceInterval = time.Second
)

// embedded is the server inside this process: miniredis, which speaks Redis's
// protocol and runs its scripts but stores nothing on disk, behind a journal.
// Scripts report their writes to the journal with two commands of our own
// (COMFYHUB.EFFECT, COMFYHUB.COMMIT). These run under the server's lock, so the
// journal records the writes in the order in which they happened.
type embedded struct {
	server  *miniredis.Miniredis
	journal *journal // nil without a data folder
	lock    *os.File
	log     *slog.Logger
	expires atomic.Bool // some key has an expiry
	tickMu  sync.Mutex
	ticked  time.Time // of the last expiry
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// startEmbedded starts the server and restores it from the journal in dir. If dir
// is empty, nothing is stored.
func startEmbedded(_ context.Context, dir string, log *slog.Logger) (_ *embedded, err error) {
	e := &embedded{server: miniredis.NewMiniRedis(), log: log, ticked: time.Now()}
	defer func() {
		if err != nil {
			e.abandon()
		}
	}()
	first, err := e.server.Dial() // starts the server without a port
	if err != nil {
		return nil, err
	}
	first.Close()
	if err := e.register(); err != nil {
		return nil, err
	}
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if e.lock, err = lockFolder(filepath.Join(dir, lockFile)); err != nil {
			return nil, err
		}
		if e.journal, err = openJournal(filepath.Join(dir, journalFile), e, log); err != nil {
			return nil, err
		}
	}
	log.Info("the queue is embedded in this process: fine for one hub and small fleets; use a Redis for more")
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.done.Go(func() { e.maintain(ctx) })
	return e, nil
}

// register adds the commands with which scripts report what they did.
func (e *embedded) register() error {
	s := e.server.Server()
	return errors.Join(
		s.Register("COMFYHUB.EFFECT", func(c *server.Peer, _ string, args []string) {
			if err := e.effect(args); err != nil {
				c.WriteError("ERR " + err.Error())
				return
			}
			c.WriteOK()
		}),
		s.Register("COMFYHUB.COMMIT", func(c *server.Peer, _ string, _ []string) {
			if e.journal != nil {
				e.journal.commit()
			}
			c.WriteOK()
		}),
		s.Register("COMFYHUB.CUT", func(c *server.Peer, _ string, _ []string) {
			if err := e.journal.cut(func(args ...string) (any, error) { return e.nested(c, args) }); err != nil {
				c.WriteError("ERR " + err.Error())
				return
			}
			c.WriteOK()
		}),
	)
}

// effect records a command that a script has executed.
func (e *embedded) effect(args []string) error {
	if len(args) < 2 {
		return errors.New("COMFYHUB.EFFECT needs a command")
	}
	if err := repeatable(args); err != nil {
		return err
	}
	if name := strings.ToUpper(args[0]); name == "PEXPIREAT" || name == "SET" && len(args) > 3 {
		e.expires.Store(true)
	}
	if e.journal != nil {
		e.journal.record(args)
	}
	return nil
}

// repeatable refuses commands that would have a different effect when the journal
// repeats them later, and types of values that the snapshot does not support.
func repeatable(args []string) error {
	name := strings.ToUpper(args[0])
	switch name {
	case "EXPIRE", "PEXPIRE", "SETEX", "PSETEX", "GETEX", "HEXPIRE", "HPEXPIRE", "SPOP", "EXPIREAT", "HPEXPIREAT", "HEXPIREAT":
		return fmt.Errorf("scripts must not use %s: the journal could not repeat it; use PEXPIREAT or name the members", name)
	case "SET":
		for _, option := range args[3:] {
			switch strings.ToUpper(option) {
			case "EX", "PX", "EXAT", "KEEPTTL":
				return fmt.Errorf("scripts must not use SET with %s: use PEXPIREAT", option)
			}
		}
	}
	if strings.HasPrefix(name, "X") || strings.HasPrefix(name, "PF") || strings.HasPrefix(name, "FLUSH") {
		return fmt.Errorf("scripts must not use %s: the embedded server does not keep such values", name)
	}
	return nil
}

// open returns a client of the server.
func (e *embedded) open() goredis.UniversalClient {
	o := &goredis.Options{
		Addr: "embedded",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			client, srv := pipe()
			e.server.Server().ServeConn(srv)
			return client, nil
		},
	}
	// Only a caller's own context ends a wait: the server cannot be unreachable,
	// and a busy machine is not an error.
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = -1, -1, time.Hour
	tune(o)
	return goredis.NewClient(o)
}

// do runs a command as a client would. It is used while there are no clients.
func (e *embedded) do(args ...string) error {
	_, err := dispatch(e.server.Server(), nil, args)
	return err
}

// nested runs a command inside the one that c is in, under its lock.
func (e *embedded) nested(c *server.Peer, args []string) (any, error) {
	return dispatch(e.server.Server(), c.Ctx, args)
}

func dispatch(s *server.Server, peerCtx any, args []string) (any, error) {
	var reply bytes.Buffer
	peer := server.NewPeer(bufio.NewWriter(&reply))
	peer.Ctx = peerCtx
	s.Dispatch(peer, args)
	peer.Flush()
	return server.ParseReply(bufio.NewReader(&reply))
}

// maintain does the periodic work.
func (e *embedded) maintain(ctx context.Context) {
	tick := time.NewTicker(maintenanceInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
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
		if err := e.journal.shorten(); err != nil {
			e.log.Warn("the journal of the queue cannot be shortened", "error", err)
		}
	}
}

// expire expires keys. miniredis could do it by itself (ClockTTL), but would then
// walk all its keys before every command.
func (e *embedded) expire() {
	e.tickMu.Lock()
	defer e.tickMu.Unlock()
	now := time.Now()
	if e.expires.Load() {
		e.server.FastForward(now.Sub(e.ticked))
	}
	e.ticked = now
}

// sync writes everything that was committed to disk.
func (e *embedded) sync() error { return e.journaled((*journal).sync) }

// usable returns an error while the journal cannot be written.
func (e *embedded) usable() error { return e.journaled((*journal).usable) }

// journaled applies do to the journal, if there is one. A disk that cannot be
// written counts as an unavailable Redis.
func (e *embedded) journaled(do func(*journal) error) error {
	if e.journal == nil {
		return nil
	}
	if err := do(e.journal); err != nil {
		return &unavailableError{fmt.Errorf("journal: %w", err)}
	}
	return nil
}

// close rewrites the journal and stops the server. Clients must be closed before.
func (e *embedded) close() error {
	e.stop()
	e.done.Wait()
	var err error
	if e.journal != nil {
		err = e.journal.close()
	}
	e.abandon()
	return err
}

// abandon stops the server and releases the folder, without another write.
func (e *embedded) abandon() {
	e.server.Close()
	if e.journal != nil {
		e.journal.file.Close()
	}
	if e.lock != nil {
		unlockFolder(e.lock)
	}
}
