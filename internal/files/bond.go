package files

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// bondKey is the storage's copy of the id, beatKey that of the count.
	bondKey = "comfyhub-bond"
	beatKey = "comfyhub-beat"
	// maxBond bounds what is read of them, in bytes.
	maxBond = 100
)

// ErrStrangers says that Redis is not the one that knows the files of the storage.
var ErrStrangers = errors.New("files: Redis and the storage do not belong together")

// Bond ties a Redis to a storage. Redis has the names of files and the storage their bytes, so
// bytes that the wrong Redis does not name are not superfluous. Both have an id, which they get
// when they first meet, and a count that goes up every hour, which reveals a Redis that somebody
// has reset to an older state.
//
//	Redis  storage  the storage's blobs           then
//	-      -        none, or Redis names most     first meeting, or an upgrade: both get an id
//	-      -        Redis does not name them      strangers: an empty Redis, or another one
//	-      a        none                          both get an id: there is nothing to lose
//	-      a        named, and a is minutes old   Redis gets a back, which a failover has lost
//	-      a        else                          strangers: an empty Redis, or an older one
//	a      -        none, or Redis names most     the storage gets a: it is new, or a hub was killed in between
//	a      -        Redis does not name them      strangers: another storage
//	a      a        any                           together
//	a      a        any, Redis's count is behind  strangers: an older Redis
//	a      b        none                          the storage gets a: there is nothing to lose
//	a      b        any                           strangers
//
// A count may be behind by one: a failover can lose the last step.
type Bond struct {
	db      *redis.DB
	storage *Storage

	mu  sync.Mutex
	err error // what the last check found; see Err
}

// NewBond makes the bond of a Redis and a storage.
func NewBond(db *redis.DB, storage *Storage) *Bond { return &Bond{db: db, storage: storage} }

// Err returns ErrStrangers, with the reason, if that is what the last check found; else nil.
func (b *Bond) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Meet checks whether Redis and the storage belong together, and ties them together if nothing
// speaks against it. Nothing may be deleted from the storage unless the error is nil. Errors other
// than ErrStrangers are those of Redis and the storage.
func (b *Bond) Meet(ctx context.Context) error {
	m, err := b.look(ctx)
	if err != nil {
		return err
	}
	what, reason := m.judge()
	switch what {
	case join:
		err = b.tie(ctx, "join", uuid.NewString())
	case recall:
		err = b.tie(ctx, "join", m.stored.id)
	case strangers:
		err = fmt.Errorf("%w: %s", ErrStrangers, reason)
	case together:
	}
	b.found(err)
	return err
}

// found notes what a check found. A storage that is away tells nothing.
func (b *Bond) found(err error) {
	if err != nil && !errors.Is(err, ErrStrangers) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// Beat counts up. Call it about once an hour while both belong together.
func (b *Bond) Beat(ctx context.Context) error {
	stored, err := b.stored(ctx)
	if err != nil {
		return err
	}
	reply, err := b.db.Run(ctx, bondScript, "beat", stored.id)
	if err != nil {
		return fmt.Errorf("files: bond: %w", err)
	}
	if reply[0] != "ok" {
		return nil // somebody has just tied the storage to another Redis
	}
	return b.write(ctx, beatKey, reply[1]+" "+reply[2]) // in this order: the storage is never ahead
}

// Age returns the time by the storage's clock, and since when, by the same clock, the storage has
// belonged to its Redis.
func (b *Bond) Age(ctx context.Context) (now, since time.Time, err error) {
	if now, err = b.storage.Now(ctx); err != nil {
		return now, since, err
	}
	written, err := b.storage.Stat(ctx, bondKey)
	return now, written.Modified, err
}

// Adopt ties the storage to this Redis, whatever either belonged to. From then on, a hub of the
// Redis that had the storage before finds strangers.
func (b *Bond) Adopt(ctx context.Context) error {
	err := b.tie(ctx, "adopt", uuid.NewString())
	b.found(err)
	return err
}

// Adoption says what [Bond.Adopt] would change. There may be more files than were looked at.
type Adoption struct {
	// Strangers is why Redis and the storage do not belong together, "" if they do.
	Strangers string `json:"strangers,omitempty"`
	// Files is how many files of the storage were looked at, and Unnamed how many of them
	// have no name in Redis.
	Files   int `json:"files"`
	Unnamed int `json:"unnamed"`
}

// Adoption checks what [Bond.Adopt] would change.
func (b *Bond) Adoption(ctx context.Context) (Adoption, error) {
	var a Adoption
	if err := b.Meet(ctx); errors.Is(err, ErrStrangers) {
		a.Strangers = err.Error()
	} else if err != nil {
		return a, err
	}
	blobs, named, err := b.sample(ctx)
	a.Files, a.Unnamed = blobs, blobs-named
	return a, err
}

// tie gives Redis an id, unless it has one that it may keep, and the storage the same.
func (b *Bond) tie(ctx context.Context, how, id string) error {
	reply, err := b.db.Run(ctx, bondScript, how, id)
	if err != nil {
		return fmt.Errorf("files: bond: %w", err)
	}
	id = reply[1]
	// Hubs that start at the same time get the same id of Redis, and all write it.
	if stored, err := b.stored(ctx); err != nil || stored.id == id {
		return err
	}
	return b.write(ctx, bondKey, id)
}

func (b *Bond) write(ctx context.Context, key, text string) error {
	_, err := b.storage.Write(ctx, key, strings.NewReader(text))
	return err
}

// tied is what one side knows about a bond.
type tied struct {
	id   string // "" for none
	beat int64
}

// stored reads the storage's side.
func (b *Bond) stored(ctx context.Context) (tied, error) {
	id, err := b.storage.text(ctx, bondKey, maxBond)
	if err != nil || id == "" {
		return tied{}, err
	}
	beat, err := b.storage.text(ctx, beatKey, maxBond)
	if err != nil {
		return tied{}, err
	}
	t := tied{id: id}
	if of, count, _ := strings.Cut(beat, " "); of == id {
		t.beat, _ = strconv.ParseInt(count, 10, 64) // 0 if it is not one
	}
	return t, nil
}
