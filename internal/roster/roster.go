// Package roster keeps what instances can run where every hub finds it: which
// instances hubs have seen lately is in Redis, their object_info in the storage, once
// for all instances with the same. A hub that restarts knows its instances before they
// answer, and a hub that cannot reach an instance knows what it could run.
//
// Its key:
//
//	fleet:seen  hash  per instance: when a hub last had it, and what it can run
package roster

import (
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// tellEvery is how often a hub says which instances it has; a hub that is alone
	// says so less often, because only its next start reads it.
	tellEvery      = 5 * time.Second
	tellEveryAlone = 5 * time.Minute
	// presentFor is how long an instance counts as present after the last hub has
	// said so.
	presentFor = 4 * tellEvery
	// rememberFor is how long an instance stays known after that.
	rememberFor = 24 * time.Hour
	// roundTimeout bounds one look at Redis and the storage.
	roundTimeout = 20 * time.Second
	// maxInstances bounds the instances that are known.
	maxInstances = 16_384
)

//go:embed scripts/tell.lua
var tellLua string

// A script, because the embedded queue keeps only what scripts write.
var tellScript = redis.NewScript("roster/tell", redis.Write, tellLua)

// Instance is one that some hub has had in the last 24 hours.
type Instance struct {
	// Info is what it can run; nil while that is not known.
	Info    *catalog.Info
	Version comfyui.Version
	// Seen is when a hub last had it.
	Seen time.Time
	// Elsewhere means that another hub has it now, and this one does not.
	Elsewhere bool
}

// entry is what Redis has of an instance.
type entry struct {
	// At is when a hub last had the instance, in milliseconds since the Unix epoch by
	// Redis's clock; hubs of older versions have written their own time.
	At      int64  `json:"at"`
	Hash    string `json:"hash"`
	Version string `json:"version,omitempty"`
}

// Options are what a roster works with.
type Options struct {
	DB      *redis.DB
	Storage *files.Storage
	Library *catalog.Library
	Logger  *slog.Logger
}

// Roster is safe for concurrent use.
type Roster struct {
	db    *redis.DB
	shelf *shelf
	log   *slog.Logger
	wake  chan struct{}

	known atomic.Pointer[map[string]Instance]
	// looked is closed once all has been read that was known at the start.
	looked chan struct{}
	// moved is when, by this hub's clock, the entry of an instance was last seen to
	// change. Only Run uses it.
	moved map[string]movement

	mu sync.Mutex
	// mine are the entries of the instances whose object_info this hub has kept.
	mine map[string]entry
}

type movement struct {
	to int64
	at time.Time
}

// New returns a roster that knows nothing yet; Run makes it learn and tell.
func New(o Options) *Roster {
	r := &Roster{
		db: o.DB, log: o.Logger, wake: make(chan struct{}, 1), looked: make(chan struct{}), moved: map[string]movement{}, mine: map[string]entry{},
		shelf: newShelf(o.Storage, o.Library),
	}
	r.known.Store(&map[string]Instance{})
	return r
}

// Keep keeps what an instance can run: a body of /object_info and its hash. The body
// is written later and not retained.
func (r *Roster) Keep(instance string, version comfyui.Version, hash string, body []byte) {
	r.mu.Lock()
	before, known := r.mine[instance]
	full := !known && len(r.mine) >= maxInstances
	r.mu.Unlock()
	if full || known && before.Hash == hash || !r.shelf.put(instance, hash, body) {
		return
	}
	r.mu.Lock()
	r.mine[instance] = entry{Hash: hash, Version: version.Text}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Recall returns what an instance can run whose object_info has that hash, nil if no
// hub has kept it.
func (r *Roster) Recall(ctx context.Context, hash string) *catalog.Info {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	info, err := r.shelf.get(ctx, hash)
	if err != nil {
		r.log.Debug("cannot read what an instance could run", "error", err)
	}
	return info
}

// Recalled notes that an instance has what Recall has returned.
func (r *Roster) Recalled(instance string, version comfyui.Version, hash string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.mine[instance]; known || len(r.mine) < maxInstances {
		r.mine[instance] = entry{Hash: hash, Version: version.Text}
	}
}

// Elsewhere returns the instances that other hubs have now and this one does not,
// with what they can run. It must not be changed.
func (r *Roster) Elsewhere() map[string]*catalog.Info {
	out := map[string]*catalog.Info{}
	for name, i := range *r.known.Load() {
		if i.Elsewhere && i.Info != nil {
			out[name] = i.Info
		}
	}
	return out
}

// Run tells the other hubs which instances this hub has, and learns which they have,
// until ctx ends. here returns the names of those that are connected to this hub.
// changed is called after each look with all that is known.
func (r *Roster) Run(ctx context.Context, here func() map[string]bool, changed func(map[string]Instance)) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	swept, looked := time.Now(), false
	for {
		round, cancel := context.WithTimeout(ctx, roundTimeout)
		err := r.round(round, here())
		cancel()
		if err != nil && ctx.Err() == nil {
			r.log.Debug("cannot exchange with other hubs what instances can run", "error", err)
		}
		changed(*r.known.Load())
		if err == nil && !looked {
			looked = true
			close(r.looked)
		}
		if err == nil && time.Since(swept) > sweepEvery {
			swept = time.Now()
			r.sweep(ctx)
		}
		select {
		case <-tick.C:
		case <-r.wake:
		case <-ctx.Done():
			return
		}
	}
}

// Looked is closed once Run has called changed with all that hubs knew at the start.
func (r *Roster) Looked() <-chan struct{} { return r.looked }

// round looks once. An error means that something could not be read or written.
func (r *Roster) round(ctx context.Context, here map[string]bool) error {
	if err := r.shelf.write(ctx); err != nil {
		return err
	}
	raw, err := r.db.Client().HGetAll(ctx, r.key()).Result()
	if err != nil {
		return err
	}
	now := time.Now()
	seen := make(map[string]entry, len(raw))
	var old []string
	for name, text := range raw {
		var e entry
		if json.Unmarshal([]byte(text), &e) != nil || now.Sub(r.movedAt(name, e.At, now)) > rememberFor {
			old = append(old, name)
			continue
		}
		seen[name] = e
	}
	if err := r.tell(ctx, here, seen, old, now); err != nil {
		return err
	}
	maps.DeleteFunc(r.moved, func(name string, _ movement) bool { _, there := seen[name]; return !there })
	return r.learn(ctx, here, seen, now)
}

// movedAt returns when an entry last changed, as far as this hub can tell.
func (r *Roster) movedAt(name string, at int64, now time.Time) time.Time {
	m, known := r.moved[name]
	switch {
	case !known: // it may be from before the start
		m = movement{at, r.db.Clock().When(at)}
	case m.to != at:
		m = movement{at, now}
	}
	r.moved[name] = m
	return m.at
}

// tell writes the entries of the instances that this hub has, unless another hub has
// just done so, and removes old ones.
func (r *Roster) tell(ctx context.Context, here map[string]bool, seen map[string]entry, old []string, now time.Time) error {
	every := tellEvery
	if r.db.Embedded() {
		every = tellEveryAlone
	}
	args := []any{0}
	r.mu.Lock()
	for name, mine := range r.mine {
		if !here[name] {
			continue
		}
		theirs, known := seen[name]
		if known && theirs.Hash == mine.Hash && now.Sub(r.moved[name].at) < every-time.Second {
			continue
		}
		mine.At = r.db.Clock().Now().UnixMilli()
		seen[name] = mine
		text, err := json.Marshal(mine)
		if err == nil {
			args = append(args, name, text)
		}
	}
	if len(r.mine) >= maxInstances { // an instance that is on its way is not here yet
		maps.DeleteFunc(r.mine, func(name string, _ entry) bool { return !here[name] })
	}
	r.mu.Unlock()
	args[0] = len(args) / 2
	for _, name := range old {
		if _, again := seen[name]; !again {
			args = append(args, name)
		}
	}
	if len(args) == 1 {
		return nil
	}
	_, err := r.db.Run(ctx, tellScript, args...)
	return err
}

// learn takes in what hubs have said. What cannot be read now is left for the next time.
func (r *Roster) learn(ctx context.Context, here map[string]bool, seen map[string]entry, now time.Time) error {
	var failed error
	known := make(map[string]Instance, len(seen))
	wanted := map[string]bool{}
	for name, e := range seen {
		wanted[e.Hash] = true
		at := r.movedAt(name, e.At, now)
		i := Instance{Version: comfyui.ParseVersion(e.Version), Seen: at, Elsewhere: !here[name] && now.Sub(at) < presentFor}
		if !here[name] {
			info, err := r.shelf.get(ctx, e.Hash)
			if err != nil {
				failed = err
			}
			i.Info = info
		}
		known[name] = i
	}
	r.shelf.retain(wanted)
	r.known.Store(&known)
	return failed
}

// sweep removes what belongs to no instance any more.
func (r *Roster) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	raw, err := r.db.Client().HGetAll(ctx, r.key()).Result()
	if err != nil {
		return
	}
	wanted := map[string]bool{}
	for _, text := range raw {
		var e entry
		if json.Unmarshal([]byte(text), &e) != nil {
			return // of a newer hub
		}
		wanted[e.Hash] = true
	}
	if err := r.shelf.sweep(ctx, wanted); err != nil {
		r.log.Debug("cannot remove what instances could run", "error", err)
	}
}

func (r *Roster) key() string { return r.db.Key("fleet", "seen") }
