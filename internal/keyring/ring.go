package keyring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// Spread is how long a new key is known before it seals anything: by then every
	// hub has read the ring again.
	Spread = 2 * time.Minute
	// Keep is how long a key opens values after it was replaced: longer than any
	// link lives and than any job should wait.
	Keep = 30 * 24 * time.Hour
	// readEvery is how often a hub reads the ring as a matter of course.
	readEvery = 30 * time.Second
	// askEvery bounds how often values with an unknown key, which anybody can make
	// up, cause the ring to be read.
	askEvery = 5 * time.Second
	// readWithin bounds one read, for which others wait.
	readWithin = 10 * time.Second
	// maxKeys bounds the ring: more can only come from a runaway script, and each
	// costs a request to the store at the start.
	maxKeys = 1000
)

var (
	// ErrUnavailable means that the store could not be read yet, so that no key is
	// known.
	ErrUnavailable = errors.New("the keys of the hub cannot be read yet")
	// ErrLocked means that a key in the store was sealed with a secret that is not
	// among those given.
	ErrLocked = errors.New("a key of the hub is sealed under another secret")
	// ErrCorrupt means that an object in the store is not a key, or a damaged one.
	ErrCorrupt = errors.New("a key of the hub is damaged")
	// ErrForged means that a sealed value was not made with a key of this ring.
	ErrForged = errors.New("not sealed with a key of the hub")
	// ErrFull means that the ring has too many keys to take another.
	ErrFull = errors.New("too many keys; rotate less often")
)

// Store keeps the objects of a ring. Only the ring may have access to them. An
// error concerns the store, not its content.
type Store interface {
	// List returns the names of all objects.
	List(ctx context.Context) ([]string, error)
	// Read returns an object. found is false if it does not exist.
	Read(ctx context.Context, name string) (body []byte, found bool, err error)
	// Write stores an object, completely or not at all.
	Write(ctx context.Context, name string, body []byte) error
	// Delete removes an object; a missing one is not an error.
	Delete(ctx context.Context, name string) error
}

// Options of a ring.
type Options struct {
	Store Store
	// Secrets are the operator's: the keys in the store are encrypted with the
	// first, and any of them may open them. Without secrets, the keys are stored
	// unencrypted.
	Secrets []string
	// Logger is never given a key. Default: nothing is logged.
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time

	iterations int // for tests; default: iterations
}

// Ring is the keys of all hubs of a store. It is safe for concurrent use.
type Ring struct {
	store Store
	log   *slog.Logger
	now   func() time.Time
	slow  int // iterations for deriving a lock

	// keys are replaced as a whole, the oldest first; empty until they could be
	// read.
	keys atomic.Pointer[[]*key]
	// revoked are the records that do not count any more.
	revoked atomic.Pointer[revocations]

	// turn is held by the one that reads or changes the ring. It is no mutex: the store may
	// hang, and whoever waits for a turn has a time of its own.
	turn  *semaphore.Weighted
	locks []*lock
	asked map[Purpose]time.Time
}

// Open is New and Refresh. After ErrUnavailable the ring is not nil and can be
// refreshed later.
func Open(ctx context.Context, o Options) (*Ring, error) {
	r, err := New(o)
	if err != nil {
		return nil, err
	}
	return r, r.Refresh(ctx)
}

// New makes a ring that seals and opens nothing until Refresh or Follow has read the
// store.
func New(o Options) (*Ring, error) {
	r := &Ring{store: o.Store, log: o.Logger, now: o.Now, slow: cmp.Or(o.iterations, iterations), asked: map[Purpose]time.Time{}, turn: semaphore.NewWeighted(1)}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.now == nil {
		r.now = time.Now
	}
	r.keys.Store(new([]*key))
	r.revoked.Store(&revocations{})
	locks, err := newLocks(o.Secrets, r.slow)
	if err != nil {
		return nil, err
	}
	r.locks = locks
	return r, nil
}

// SetSecrets replaces the operator's secrets. If a key cannot be opened with the
// new ones, the ring does not change. A ring that could not be read yet takes them
// unchecked, and its next Refresh checks them.
func (r *Ring) SetSecrets(ctx context.Context, secrets []string) error {
	locks, err := newLocks(secrets, r.slow)
	if err != nil {
		return err
	}
	if err := wait(ctx, r.turn); err != nil {
		return err
	}
	defer r.turn.Release(1)
	before := r.locks
	if slices.EqualFunc(before, locks, (*lock).same) {
		return nil
	}
	r.locks = locks
	if len(*r.keys.Load()) == 0 {
		return nil
	}
	if err := r.read(ctx, true); err != nil {
		r.locks = before
		return err
	}
	return nil
}

// Follow keeps the ring up to date until ctx ends.
func (r *Ring) Follow(ctx context.Context) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	told := "" // the error that was logged last: each is logged once
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		err := r.Refresh(ctx)
		if ctx.Err() != nil {
			return
		}
		if text := textOf(err); text != told {
			told = text
			if err != nil {
				r.log.Error("cannot read the hub's keys; the known ones stay in use", "error", err)
			}
		}
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Refresh reads the ring, and creates its first key if there is none. After an error
// the known keys stay. Errors: ErrLocked and ErrCorrupt, after which nothing in the
// store has changed; ErrUnavailable if the store does not answer.
func (r *Ring) Refresh(ctx context.Context) error {
	if err := wait(ctx, r.turn); err != nil {
		return err
	}
	defer r.turn.Release(1)
	return r.read(ctx, false)
}

// wait waits for a turn.
func wait(ctx context.Context, turn *semaphore.Weighted) error {
	if err := turn.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// read reads the store's keys. Objects never change, except how they are sealed, so
// known ones are not read again unless all is true. A damaged key does not prevent
// a running hub from learning the others. The caller has the turn.
func (r *Ring) read(ctx context.Context, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	names, err := r.store.List(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	r.noteRevoked(names)
	names = slices.DeleteFunc(names, func(name string) bool { return !isName(name) })
	if len(names) > maxKeys {
		return fmt.Errorf("%w: %d", ErrFull, len(names))
	}
	known := map[string]*key{}
	for _, k := range *r.keys.Load() {
		known[k.name] = k
	}
	if len(names) == 0 {
		if len(known) > 0 {
			// Somebody has emptied the store, or it is not mounted. A new ring
			// would make everything that was sealed worthless.
			return fmt.Errorf("%w: none are left", ErrCorrupt)
		}
		_, err := r.add(ctx)
		return err
	}
	ring := make(map[string]*key, len(names))
	var errs []error
	for _, name := range names {
		k := known[name]
		if k == nil || all {
			if k, err = r.load(ctx, name); err != nil {
				errs = append(errs, err)
			}
		}
		if k != nil {
			ring[name] = k
		}
	}
	if err := errors.Join(errs...); len(ring) == 0 || err != nil && (all || len(known) == 0) {
		return cmp.Or(err, fmt.Errorf("%w: all were just deleted", ErrUnavailable))
	}
	r.use(ring)
	r.sealAgain(ctx)
	return errors.Join(errs...)
}

// load reads one key, nil for one that was deleted meanwhile.
func (r *Ring) load(ctx context.Context, name string) (*key, error) {
	body, found, err := r.store.Read(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if !found {
		return nil, nil
	}
	k, err := decode(name, body, r.locks)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, name)
	}
	return k, nil
}

// sealAgain reseals the keys that are not sealed with the first secret. If that
// fails, the next hub that starts tries again.
func (r *Ring) sealAgain(ctx context.Context) {
	first := firstOf(r.locks)
	if first == nil {
		return
	}
	for _, k := range *r.keys.Load() {
		if first.same(k.by) {
			continue
		}
		if err := r.store.Write(ctx, k.name, k.encode(first)); err != nil {
			r.log.Warn("cannot seal a key of the hub under the first secret", "key", k.id.String(), "error", err)
			continue
		}
		r.log.Info("sealed a key of the hub under the first secret", "key", k.id.String(), "before", k.by.String())
		k.by = first
	}
}

// add creates a key and adds it to the ring. The caller has the turn.
func (r *Ring) add(ctx context.Context) (*key, error) {
	k, err := newKey(r.now())
	if err != nil {
		return nil, err
	}
	k.by = firstOf(r.locks)
	if err := r.store.Write(ctx, k.name, k.encode(k.by)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	ring := map[string]*key{k.name: k}
	for _, other := range *r.keys.Load() {
		ring[other.name] = other
	}
	r.use(ring)
	r.log.Info("made a key for links and API keys", "key", k.id.String(), "sealed_by", k.by.String())
	return k, nil
}

// use replaces the set of keys.
func (r *Ring) use(ring map[string]*key) {
	keys := slices.SortedFunc(maps.Values(ring), func(a, b *key) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
	})
	r.keys.Store(&keys)
}

// sealing returns the key that seals now: the newest that every hub knows; in the
// first minutes of a ring, the first one.
func (r *Ring) sealing() *key {
	keys := *r.keys.Load()
	spread := r.now().Add(-Spread)
	for _, k := range slices.Backward(keys) {
		if !k.created.After(spread) {
			return k
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return keys[0]
}

// find returns a key by its id, nil for an unknown one.
func (r *Ring) find(id keyID) *key {
	for _, k := range *r.keys.Load() {
		if k.id == id {
			return k
		}
	}
	return nil
}

// ask is find for an id that was unknown: it reads the ring again, but not every
// time, because anybody can make up an id. Each purpose has its own limit, so that
// forged links do not keep a hub from opening API keys.
func (r *Ring) ask(ctx context.Context, p Purpose, id keyID) (*key, error) {
	if err := wait(ctx, r.turn); err != nil {
		return nil, err
	}
	defer r.turn.Release(1)
	if k := r.find(id); k != nil {
		return k, nil
	}
	now := r.now()
	if since := now.Sub(r.asked[p]); since >= 0 && since < askEvery {
		return nil, nil
	}
	r.asked[p] = now
	if err := r.read(ctx, false); err != nil {
		return nil, err
	}
	return r.find(id), nil
}
