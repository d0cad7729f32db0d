package redis

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/comfyhub/comfyhub/internal/redis/engine"
)

// ErrLocked says that another process, or another DB of this one, uses the
// data folder.
var ErrLocked = engine.ErrLocked

// startEmbedded starts the Redis inside this process and restores it from the
// journal in dir. With an empty dir nothing is kept.
func startEmbedded(dir string, log *slog.Logger) (*engine.Engine, error) {
	e, err := engine.Open(engine.Options{Dir: dir, Logger: log})
	if err != nil {
		return nil, err
	}
	log.Info("the queue is embedded in this process: for one hub; several hubs share a Redis")
	return e, nil
}

// embeddedPool is how many connections to the embedded server there may be.
const embeddedPool = 1000

// RepairJournal cuts the journal of the embedded server in a data folder where it is
// damaged; see [engine.Repair].
func RepairJournal(dir string) (kept, lost int64, err error) { return engine.Repair(dir) }

// openEmbedded makes a client for plain reads and subscriptions.
func openEmbedded(e *engine.Engine) opener {
	return func() goredis.UniversalClient {
		// In memory a connection costs less than waiting for one.
		o := &goredis.Options{Addr: Embedded, Dialer: e.Dial, PoolSize: embeddedPool}
		// Only a caller's own context ends a wait: there is no server that could
		// be away, and a machine that is busy is no fault.
		o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = -1, -1, time.Hour
		tune(o)
		return goredis.NewClient(o)
	}
}

// runEmbedded runs a script in this process. There is no network, so it is
// neither sent twice nor remembered.
func (db *DB) runEmbedded(ctx context.Context, s *Script, args []any) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.mode >= Durable {
		if err := db.embedded.Usable(); err != nil {
			return nil, &unavailableError{err}
		}
	}
	texts, err := argTexts(args)
	if err != nil {
		return nil, err
	}
	compiled, err := s.embedded()
	if err != nil {
		return nil, err
	}
	reply, err := db.embedded.Run(compiled, append([]string{db.root()}, s.keysOf(db, texts)...), texts)
	if s.mode >= Durable {
		// A script that failed in the middle has done what came before.
		if err := db.embedded.Sync(); err != nil {
			return nil, &unavailableError{err}
		}
	}
	return reply, classify(ctx, err)
}

// argTexts writes arguments as go-redis does.
func argTexts(args []any) ([]string, error) {
	texts := make([]string, len(args))
	for i, arg := range args {
		switch a := arg.(type) {
		case string:
			texts[i] = a
		case []byte:
			texts[i] = string(a)
		case int, int64, int32, uint64, uint32, uint:
			texts[i] = fmt.Sprint(a)
		case float64:
			texts[i] = strconv.FormatFloat(a, 'f', -1, 64)
		case bool:
			texts[i] = "0"
			if a {
				texts[i] = "1"
			}
		default:
			return nil, fmt.Errorf("argument %d is a %T", i+1, arg)
		}
	}
	return texts, nil
}
