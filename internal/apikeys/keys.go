// Package apikeys keeps the keys by which programs identify themselves to a hub: whom a
// key belongs to, what it permits, until when, and the limits of its tenant. Redis holds
// only hashes of the secrets: whoever reads it can pass for nobody. Each key is signed
// with the hubs' own keys: whoever writes there can make no key, change none, and bring back
// none that was revoked.
//
// Its keys:
//
//	g:apikeys          hash  per name: when the key expires in milliseconds (0: never), and
//	                         the key as JSON with the SHA-256 of its secret, signed
//	g:apikeys:version  text  changes with the hash
//	g:apikeys:used     hash  per name: when the key was used last, in milliseconds
package apikeys

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// most bounds the keys.
const most = 10_000

var (
	// ErrFull means that there is no room for another key.
	ErrFull = errors.New("there are too many API keys: revoke some")
	// ErrExists means that a valid key of that name is there.
	ErrExists = errors.New("there is a key of that name: revoke it first, or choose another name")
)

// WantedError is the error of [Keys.Add] for a key that cannot be. Its text is for the
// operator.
type WantedError struct{ err error }

// Error says what is wrong.
func (e *WantedError) Error() string { return e.err.Error() }

//go:embed scripts/add.lua
var addLua string

//go:embed scripts/revoke.lua
var revokeLua string

//go:embed scripts/sign.lua
var signLua string

//go:embed scripts/read.lua
var readLua string

//go:embed scripts/used.lua
var usedLua string

//go:embed scripts/use.lua
var useLua string

// Durable, because a key that was revoked must not come back after a crash.
var (
	addScript    = redis.NewScript("apikeys/add", redis.Durable, addLua)
	revokeScript = redis.NewScript("apikeys/revoke", redis.Durable, revokeLua)
	signScript   = redis.NewScript("apikeys/sign", redis.Durable, signLua)
	readScript   = redis.NewScript("apikeys/read", redis.ReadOnly, readLua)
	usedScript   = redis.NewScript("apikeys/used", redis.ReadOnly, usedLua)
	useScript    = redis.NewScript("apikeys/use", redis.Write, useLua)
)

// Keys are those of a Redis. They are safe for concurrent use.
type Keys struct {
	db      *redis.DB
	records *keyring.Records
	most    int

	// reading guards changes of what is known, so that an older reading does not come
	// after a newer one.
	reading *semaphore.Weighted
	known   atomic.Pointer[known]
}

// New returns the keys of a Redis, signed with those of a ring.
func New(db *redis.DB, ring *keyring.Ring) *Keys {
	return &Keys{db: db, reading: semaphore.NewWeighted(1), records: ring.Records("apikeys"), most: most}
}

// Add makes a key and returns it with its secret, which nobody can read again. The error
// is a *[WantedError], [ErrExists], [ErrFull], or one of Redis.
func (k *Keys) Add(ctx context.Context, w Wanted) (Key, string, error) {
	key, err := w.key()
	if err != nil {
		return Key{}, "", &WantedError{err}
	}
	// The times are signed as well, so they are this hub's idea of Redis's clock.
	if err := k.read(ctx, false); err != nil {
		return Key{}, "", err
	}
	key.Created = k.known.Load().now().UnixMilli()
	if w.Life > 0 {
		key.Expires = key.Created + max(w.Life.Milliseconds(), 1)
	}
	secret := newSecret()
	sum := hashOf(secret)
	text, err := k.sign(key, sum)
	if err != nil {
		return Key{}, "", err
	}
	reply, err := k.db.Run(ctx, addScript, key.Name, text, k.most, rand.Text())
	switch {
	case err != nil:
		return Key{}, "", fmt.Errorf("apikeys: %w", err)
	case reply[0] == "exists":
		return Key{}, "", ErrExists
	case reply[0] == "full":
		return Key{}, "", ErrFull
	}
	return key, secret, k.read(ctx, false)
}

// Revoke makes a key invalid, and reports whether there was one. When it returns, this hub
// does not accept the key any more; other hubs follow within a second. After an error of the
// storage the key is revoked, but who can write to Redis could bring it back.
func (k *Keys) Revoke(ctx context.Context, name string) (bool, error) {
	if err := k.read(ctx, true); err != nil {
		return false, err
	}
	var lasting error
	if e := k.known.Load().byName[name]; e != nil {
		lasting = k.records.Revoke(ctx, e.hash.String())
	}
	reply, err := k.db.Run(ctx, revokeScript, name, rand.Text())
	if err != nil {
		return false, fmt.Errorf("apikeys: %w", err)
	}
	return reply[0] == "1", errors.Join(k.read(ctx, true), lasting)
}

// List returns all keys by name, those that have expired too.
func (k *Keys) List(ctx context.Context) ([]Key, error) {
	if err := k.read(ctx, false); err != nil {
		return nil, err
	}
	reply, err := k.db.Run(ctx, usedScript)
	if err != nil {
		return nil, fmt.Errorf("apikeys: %w", err)
	}
	used := map[string]int64{}
	for pair := range slices.Chunk(reply, 2) {
		if len(pair) == 2 {
			used[pair[0]], _ = strconv.ParseInt(pair[1], 10, 64)
		}
	}
	var list []Key
	for _, one := range k.known.Load().byName {
		key := one.Key
		key.Used = used[key.Name]
		list = append(list, key)
	}
	slices.SortFunc(list, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// read takes in what has changed in Redis, or everything: whoever writes there can make it
// look as if nothing has changed.
func (k *Keys) read(ctx context.Context, all bool) error {
	if err := k.reading.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("apikeys: %w", err)
	}
	defer k.reading.Release(1)
	before := k.known.Load()
	version, revoked := "", k.records.Revocations()
	if before != nil && before.revoked == revoked && !all {
		version = before.version
	}
	reply, err := k.db.Run(ctx, readScript, version)
	if err != nil {
		return fmt.Errorf("apikeys: %w", err)
	}
	if len(reply) < 2 || len(reply)%2 != 0 {
		return errors.New("apikeys: an answer of the wrong length")
	}
	clock, err := strconv.ParseInt(reply[1], 10, 64)
	if err != nil {
		return fmt.Errorf("apikeys: %w", err)
	}
	now := &known{version: reply[0], revoked: revoked}
	if reply[0] == "same" {
		*now = *before
	}
	now.read, now.ahead = time.Now(), time.Until(time.UnixMilli(clock))
	if reply[0] == "same" {
		if now.next > 0 && now.now().UnixMilli() >= now.next {
			now.expire()
		}
	} else {
		found, err := k.check(ctx, reply[2:], before)
		if err != nil {
			return err
		}
		now.refused = found.refused
		if found.again {
			now.version = "" // look at everything again
		}
		now.revoked = k.records.Revocations()
		now.take(found.valid, before)
	}
	k.known.Store(now)
	return nil
}
