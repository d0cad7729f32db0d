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
// disk when Run returns without an error.
func (db *DB) Run(ctx context.Context, s *Script, args ...any) ([]string, error) {
	src, keys := s.source, []string{db.root()}
	if db.embedded != nil {
		src = s.embedded
	} else if s.mode != ReadOnly {
		keys = append(keys, db.Key("nonce", uuid.NewString()))
	}
	var reply []string
	eval := func() (err error) {
		reply, err = db.eval(ctx, src, keys, args)
		return err
	}
	var err error
	if db.embedded == nil {
		err = tryAgain(ctx, eval)
	} else {
		// There is no network, so there are no nonces; a deadline that passed while
		// the script ran must not run it again.
		if s.mode == Durable {
			err = db.embedded.usable()
		}
		if err == nil {
			err = eval()
		}
	}
	if err == nil {
		err = db.settle(s)
	}
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", s.name, err)
	}
	return reply, nil
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
	if errors.Is(err, goredis.Nil) {
		return nil, nil
	}
	return reply, err
}

// settle brings what a script wrote into the journal of the embedded server.
func (db *DB) settle(s *Script) error {
	if db.embedded == nil || s.mode != Durable {
		return nil
	}
	if err := db.embedded.sync(); err != nil {
		return fmt.Errorf("script %s: %w", s.name, err)
	}
	return nil
}
