package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

var (
	// ErrNotInTrash says that a name is not, or no longer, in the trash.
	ErrNotInTrash = errors.New("files: no longer in the trash")
	// ErrTaken says that a name in the trash is an output's of another run by now.
	ErrTaken = errors.New("files: another output has taken that name")
)

// Trashed is a name in the trash.
type Trashed struct {
	// ID is short, and different for all names in the trash.
	ID     string
	Tenant string
	// Ref is the name, and Size the size of its bytes.
	Ref  job.FileRef
	Size int64
	// Why is "overwritten", by an upload, or "unused", for longer than allowed.
	Why string
	// Since is when the name was lost, and Until how long it is kept, by this hub's clock.
	Since, Until time.Time

	packed string
}

// Trash has the names that were overwritten, or that nobody had used for long, for as long as they
// can be taken back.
type Trash struct {
	db     *redis.DB
	keys   keys
	blobs  blobs
	copies *copies
	grace  grace
}

// NewTrash returns the trash of a store.
func NewTrash(s *Store) *Trash {
	return &Trash{db: s.db, keys: s.keys, blobs: s.blobs, copies: s.copies, grace: s.grace}
}

// grace is how long the trash keeps a name.
type grace func() time.Duration

// arg returns it in the form that scripts take.
func (g grace) arg() string {
	if grace := g(); grace > 0 {
		return strconv.FormatInt(grace.Milliseconds(), 10)
	}
	return ""
}

// List returns the newest names in the trash of a tenant, or of all with "", and how many there
// are in all.
func (t *Trash) List(ctx context.Context, tenant string, most int) (newest []Trashed, all int, err error) {
	tenants := []string{tenant}
	if tenant == "" {
		if tenants, err = t.db.Client().ZRevRange(ctx, t.db.Key("files", "trash"), 0, -1).Result(); err != nil {
			return nil, 0, fmt.Errorf("files: trash: %w", err)
		}
	}
	for _, tenant := range tenants {
		n, err := t.db.Client().ZCard(ctx, t.keys.trash(tenant)).Result()
		if err != nil {
			return nil, 0, fmt.Errorf("files: trash: %w", err)
		}
		all += int(n)
		some, err := t.of(ctx, tenant, most)
		if err != nil {
			return nil, 0, err
		}
		newest = append(newest, some...)
		slices.SortFunc(newest, func(a, b Trashed) int { return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(a.ID, b.ID)) })
		newest = newest[:min(len(newest), most)]
	}
	return newest, all, nil
}

// of returns the newest names in the trash of a tenant.
func (t *Trash) of(ctx context.Context, tenant string, most int) ([]Trashed, error) {
	found, err := t.db.Client().ZRevRangeWithScores(ctx, t.keys.trash(tenant), 0, int64(most)-1).Result()
	if err != nil {
		return nil, fmt.Errorf("files: trash: %w", err)
	}
	// By Redis's clock the end may be any distance ahead, so only what is left of the time counts, as for
	// whoever empties the trash.
	now, grace := time.Now(), t.grace()
	stored := t.db.Clock().Ago(grace).Add(grace)
	var all []Trashed
	for _, z := range found {
		packed, _ := z.Member.(string)
		parts, ok := redis.Unpack(packed)
		if !ok || len(parts) != 5 {
			return nil, fmt.Errorf("%w: trash", errEntry)
		}
		p := place{typ: parts[0], dir: parts[1], name: parts[2]}
		e, err := decodeEntry(parts[4], p)
		if err != nil {
			return nil, err
		}
		until := now.Add(time.UnixMilli(int64(z.Score)).Sub(stored))
		all = append(all, Trashed{
			ID: hashed(redis.Pack(tenant, packed))[:12], Tenant: tenant, Ref: e.Ref, Size: max(e.Size, 0), Why: parts[3],
			Since: until.Add(-grace), Until: until, packed: packed,
		})
	}
	return all, nil
}

// TakeBack gives a name in a tenant's trash back to its file, and returns it. An upload that now
// has the name goes to the trash instead. Errors: ErrNotInTrash, ErrTaken.
func (t *Trash) TakeBack(ctx context.Context, tenant, id string) (Trashed, error) {
	all, err := t.of(ctx, tenant, math.MaxInt32)
	if err != nil {
		return Trashed{}, err
	}
	n := slices.IndexFunc(all, func(one Trashed) bool { return one.ID == id })
	if n < 0 {
		return Trashed{}, ErrNotInTrash
	}
	got := all[n]
	p, _ := placeOf(got.Ref)
	reply, err := t.db.Run(ctx, takeBackScript, tenant, got.packed, t.keys.folder(tenant, p), t.keys.folders(tenant, p.typ), t.grace.arg())
	if err != nil {
		return Trashed{}, fmt.Errorf("files: trash: %w", err)
	}
	switch reply[0] {
	case "missing":
		return Trashed{}, ErrNotInTrash
	case "taken":
		return Trashed{}, ErrTaken
	}
	e, err := decodeEntry(reply[1], p)
	if err != nil {
		return Trashed{}, err
	}
	t.copies.note(nameKey{tenant, p}, e)
	return got, nil
}

// TrashBounds are what the trash makes room for.
type TrashBounds struct {
	// Size is how much the outputs of everybody and the trash may take up together, and Own the
	// same for each tenant, in bytes; 0 means no bound.
	Size, Own int64
	// Full empties it: the storage has no room.
	Full bool
	// Old is up to when, by Redis's clock, a name must have been lost so that its time is over.
	Old time.Time
}

// Empty removes names from the trash that have been in it for long enough, and the oldest if
// there is too much: the tenants with the most in the trash pay. Then it deletes the bytes of
// everything that has left the trash, going on where it was interrupted. What a job has pinned
// stays until a later call.
func (t *Trash) Empty(ctx context.Context, b TrashBounds, pinned Pinned) (Swept, error) {
	if err := t.empty(ctx, b); err != nil {
		return Swept{}, err
	}
	return t.deleteDropped(ctx, pinned.once())
}

func (t *Trash) empty(ctx context.Context, b TrashBounds) error {
	trash, err := sharesIn(ctx, t.db, t.db.Key("files", "trash"))
	if err != nil || len(trash) == 0 {
		return err
	}
	outputs, err := sharesIn(ctx, t.db, t.keys.shares())
	if err != nil {
		return err
	}
	level, taken := int64(math.MaxInt64), int64(0)
	own := map[string]int64{}
	for _, sh := range outputs {
		taken, own[sh.tenant] = taken+sh.bytes, sh.bytes
	}
	if b.Full {
		level = 0
	} else if b.Size > 0 {
		if fair, over := levelOf(trash, max(b.Size-taken, 0)); over {
			level = fair
		}
	}
	for _, sh := range trash {
		most := level
		if b.Own > 0 {
			most = min(most, max(b.Own-own[sh.tenant], 0))
		}
		if err := t.emptyOf(ctx, sh.tenant, most, b.Old); err != nil {
			return err
		}
	}
	return nil
}

// emptyOf is empty for one tenant, whose trash may take up most bytes.
func (t *Trash) emptyOf(ctx context.Context, tenant string, most int64, old time.Time) error {
	until := strconv.FormatInt(old.Add(t.grace()).UnixMilli(), 10)
	for range expireMost / expireBatch {
		reply, err := t.db.Run(ctx, emptyScript, tenant, strconv.FormatInt(min(most, 1<<52), 10), expireBatch, until)
		if err != nil {
			return fmt.Errorf("files: trash: %w", err)
		}
		if reply[1] != strconv.Itoa(expireBatch) {
			break
		}
	}
	return nil
}

// deleteDropped deletes the bytes of what has left the trash. What cannot be deleted yet is tried
// again in an hour, and holds up nothing else; if the storage refused, the error is its ErrStorage.
func (t *Trash) deleteDropped(ctx context.Context, pinned Pinned) (Swept, error) {
	var swept Swept
	var refused refusal
	dropped := t.db.Key("files", "dropped")
	for {
		now, err := t.db.Now(ctx)
		if err != nil {
			return swept, fmt.Errorf("files: trash: %w", err)
		}
		members, err := t.db.Client().ZRangeByScore(ctx, dropped, &redis.ZRangeBy{
			Min: "-inf", Max: strconv.FormatInt(now.UnixMilli(), 10), Count: expireBatch,
		}).Result()
		if err != nil {
			return swept, fmt.Errorf("files: trash: %w", err)
		}
		if len(members) == 0 {
			return swept, refused.first
		}
		later := make([]redis.Z, len(members))
		for n, packed := range members {
			later[n] = redis.Z{Score: float64(now.Add(holdFor).UnixMilli()), Member: packed}
		}
		if err := t.db.Client().ZAdd(ctx, dropped, later...).Err(); err != nil {
			return swept, fmt.Errorf("files: trash: %w", err)
		}
		blobs := make([]Blob, len(members))
		for n, packed := range members {
			if blobs[n], err = droppedBlob(packed); err != nil {
				return swept, err
			}
		}
		kept, err := t.blobs.sweepUnnamed(ctx, blobs, pinned, &swept)
		if err := refused.past(err); err != nil {
			return swept, err
		}
		left := make(map[string]bool, len(kept))
		for _, blob := range kept {
			left[blob.Key] = true
		}
		var gone []any
		for n, packed := range members {
			if !left[blobs[n].Key] {
				gone = append(gone, packed)
			}
		}
		if len(gone) == 0 {
			continue
		}
		if err := t.db.Client().ZRem(ctx, dropped, gone...).Err(); err != nil {
			return swept, fmt.Errorf("files: trash: %w", err)
		}
	}
}

func droppedBlob(packed string) (Blob, error) {
	parts, ok := redis.Unpack(packed)
	if !ok || len(parts) != 2 {
		return Blob{}, fmt.Errorf("%w: trash", errEntry)
	}
	size, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return Blob{}, fmt.Errorf("%w: trash", errEntry)
	}
	return Blob{Key: parts[0], Size: size}, nil
}
