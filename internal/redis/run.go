package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/comfyhub/comfyhub/internal/retry"
)

// Bounds on retrying a script or read. After as long as a hanging Redis takes,
// nothing is retried: the caller has waited enough.
const (
	maxTries   = 3
	retryFor   = ioTimeout
	retryPause = 50 * time.Millisecond
)

// Run runs a script with the arguments as ARGV and returns its reply, a flat list
// of strings. A script that changes something takes effect once, even if the
// connection breaks and Run sends it again. If Run fails with ErrUnavailable, it
// may or may not have taken effect. On the embedded server a Durable script is on
// disk when Run returns without an error, and a Replicated one has reached as many
// replicas as Options.Replicas says.
func (db *DB) Run(ctx context.Context, s *Script, args ...any) ([]string, error) {
	began := time.Now()
	reply, err := db.run(ctx, s, args)
	report(ctx, db.observe, s.mode != ReadOnly, began, err)
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", s.name, err)
	}
	return reply, nil
}

func (db *DB) run(ctx context.Context, s *Script, args []any) ([]string, error) {
	if db.embedded != nil {
		return db.runEmbedded(ctx, s, args)
	}
	keys := []string{db.root()}
	if s.mode != ReadOnly {
		keys = append(keys, db.Key("nonce", uuid.NewString()))
	}
	if names, _ := s.keys(); len(names) > 0 {
		texts, err := argTexts(args)
		if err != nil {
			return nil, err
		}
		keys = append(keys, s.keysOf(db, texts)...)
	}
	var reply []string
	err := tryAgain(ctx, func() (err error) {
		if s.mode == Replicated && db.replicas != nil {
			reply, err = db.replicas.run(ctx, s.source(), keys, args)
		} else {
			reply, err = db.eval(ctx, s.source(), keys, args)
		}
		return err
	})
	return reply, err
}

// tryAgain calls do, which may safely be repeated, until it succeeds, fails for a
// reason other than the network, or has taken too long.
func tryAgain(ctx context.Context, do func() error) error {
	begin := time.Now()
	pauses := retry.New(retryPause, 2*retryPause)
	for try := 1; ; try++ {
		err := do()
		if err == nil || try == maxTries || ctx.Err() != nil || time.Since(begin) > retryFor || !isNetwork(err) {
			return err
		}
		pauses.Wait(ctx)
	}
}

// eval sends the hash of the script, and the script itself to a server that does
// not know it.
func (db *DB) eval(ctx context.Context, src source, keys []string, args []any) ([]string, error) {
	reply, err := db.client.EvalSha(ctx, src.sha, keys, args...).StringSlice()
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		reply, err = db.client.Eval(ctx, src.text, keys, args...).StringSlice()
	}
	switch {
	case errors.Is(err, goredis.Nil):
		return nil, nil
	case err != nil && strings.HasPrefix(err.Error(), "ERR unknown command"):
		return nil, fmt.Errorf("redis: the server runs no Lua scripts (EVAL, EVALSHA), which the hub needs: %w", err)
	}
	return reply, err
}
