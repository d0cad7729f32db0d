package apikeys

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// readEvery is how often a hub looks for changes.
	readEvery = 500 * time.Millisecond
	// readTimeout bounds one look.
	readTimeout = 2 * time.Second
	// trustedFor is how long keys are accepted while Redis does not answer: a key may have
	// been revoked at another hub.
	trustedFor = 10 * time.Second
	// newestAfter is how old the view of a hub is at least before an unknown key makes it look
	// again: unknown keys must not keep Redis busy.
	newestAfter = 100 * time.Millisecond
	// notedEvery is how often the use of one key is written.
	notedEvery = time.Minute
	// notedAtOnce bounds the keys of one write.
	notedAtOnce = 500
)

// Errors of [Keys.Find].
var (
	// ErrMistyped means that a text is not complete, or was changed on the way.
	ErrMistyped = errors.New("apikeys: the key is not complete, or mistyped")
	// ErrUnknown means that there is no such key: it was revoked, has expired, or never was.
	ErrUnknown = errors.New("apikeys: no such key")
)

// Access is what a secret gives.
type Access struct {
	Key
	// Until calls a function once the key is not valid any more. stop prevents that.
	Until func(do func()) (stop func() bool)
}

// Find returns what a secret gives, and notes that its key is used. The error is
// [ErrMistyped], [ErrUnknown], or one of Redis: while it has not answered for ten seconds,
// no key is accepted.
func (k *Keys) Find(ctx context.Context, secret string) (Access, error) {
	if !wellFormed(secret) {
		return Access{}, ErrMistyped
	}
	now := k.known.Load()
	if now == nil || time.Since(now.read) > trustedFor {
		if err := k.look(ctx); err != nil {
			return Access{}, err
		}
		now = k.known.Load()
	}
	e := now.find(secret)
	if e == nil && time.Since(now.read) > newestAfter { // it may have been made just now, at another hub
		if err := k.look(ctx); err != nil {
			return Access{}, err
		}
		e = k.known.Load().find(secret)
	}
	if e == nil {
		return Access{}, ErrUnknown
	}
	e.used.Store(time.Now().UnixMilli())
	return Access{Key: e.Key, Until: func(do func()) func() bool { return context.AfterFunc(e.valid, do) }}, nil
}

// Limits returns the limits that the keys of a tenant give it.
func (k *Keys) Limits(tenant string) Limits {
	if now := k.known.Load(); now != nil {
		return now.limits[tenant]
	}
	return Limits{}
}

// Follow keeps this hub's view of the keys up to date until the context ends: what other
// hubs change, and what expires. Records in Redis that are no keys are logged once.
func (k *Keys) Follow(ctx context.Context, log func() *slog.Logger) {
	told := map[Refused]bool{}
	for failed := false; ; {
		err := k.look(ctx)
		for _, r := range k.Refused() {
			if !told[r] && len(told) < 10*maxRefused {
				told[r] = true
				log().Warn("ignoring an API key in Redis that no hub of this fleet has signed", "name", r.Name, "reason", r.Why)
			}
		}
		if err == nil {
			err = k.note(ctx)
		}
		if err != nil && ctx.Err() == nil && !failed {
			log().Warn("cannot read the API keys", "error", err)
		}
		failed = err != nil
		if !retry.Sleep(ctx, readEvery) {
			return
		}
	}
}

// look is read with a deadline.
func (k *Keys) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := k.read(ctx, false); err != nil {
		if ctx.Err() != nil && !errors.Is(err, redis.ErrUnavailable) {
			return fmt.Errorf("%w: %w", redis.ErrUnavailable, err)
		}
		return err
	}
	return nil
}

// note writes which keys are used.
func (k *Keys) note(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	names, done := k.known.Load().unnoted(notedEvery)
	for some := range slices.Chunk(names, notedAtOnce) {
		args := make([]any, len(some))
		for n, name := range some {
			args[n] = name
		}
		if _, err := k.db.Run(ctx, useScript, args...); err != nil {
			return fmt.Errorf("apikeys: %w", err)
		}
	}
	done()
	return nil
}
