package files

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Swept is what was deleted.
type Swept struct {
	Files int
	Bytes int64
}

const (
	// doomFor bounds how long others wait for one deletion. deleteWithin is well below that: a
	// sweep that slept on the way must not delete what was taken up again meanwhile.
	doomFor      = time.Minute
	deleteWithin = 30 * time.Second
	// sweepBatch is how many names are looked up at once.
	sweepBatch = 500
)

// refusal lets deletions go on past what the storage refuses to delete.
type refusal struct {
	// first is the ErrStorage to return at the end; nil for none.
	first error
}

// past returns the error unless it is the storage's.
func (r *refusal) past(err error) error {
	if !errors.Is(err, ErrStorage) {
		return err
	}
	if r.first == nil {
		r.first = err
	}
	return nil
}

// SweepParts is how many parts the storage is divided into, so that a sweep need not look at all of
// it at once.
const SweepParts = 256

// Sweep deletes the blobs of a part, from 0 to SweepParts-1, that have no name, are not pinned and
// are older than age, at least an hour, by the storage's clock, whose time is now: see Bond.Age. It
// may run on several hubs at once.
func (s *Store) Sweep(ctx context.Context, part int, now time.Time, age time.Duration, pinned Pinned) (Swept, error) {
	pinned = pinned.once()
	before := now.Add(-max(age, holdFor))
	var swept Swept
	var refused refusal
	for _, prefix := range [...]string{contentPrefix, outputPrefix} {
		var old []Blob
		err := s.storage.List(ctx, prefix+fmt.Sprintf("%02x/", part), func(b Blob) error {
			if !b.Modified.After(before) {
				old = append(old, b)
			}
			return nil
		})
		if err != nil {
			return swept, err
		}
		for batch := range slices.Chunk(old, sweepBatch) {
			_, err := s.sweepUnnamed(ctx, batch, pinned, &swept)
			if err := refused.past(err); err != nil {
				return swept, err
			}
		}
	}
	return swept, errors.Join(refused.first, s.sweepBlocks(ctx, part, now))
}

// sweepUnnamed deletes those of the blobs that have no name, and returns the nameless ones that
// have to be kept for now: a job has them pinned, somebody holds them, or the storage refuses to
// delete them, which is an ErrStorage once the others are deleted.
func (s *Store) sweepUnnamed(ctx context.Context, blobs []Blob, pinned Pinned, swept *Swept) (kept []Blob, err error) {
	keys := make([]string, len(blobs))
	for i, b := range blobs {
		keys[i] = b.Key
	}
	names, err := s.db.Client().HMGet(ctx, s.db.Key("files", "refs"), keys...).Result()
	if err != nil {
		return nil, fmt.Errorf("files: sweep: %w", err)
	}
	var refused refusal
	for i, b := range blobs {
		if names[i] != nil {
			continue
		}
		needed, err := pinned(ctx)
		if err != nil {
			return nil, err
		}
		deleted := false
		if !needed[b.Key] {
			deleted, err = s.sweep(ctx, b.Key)
			if err := refused.past(err); err != nil {
				return nil, err
			}
		}
		if !deleted {
			kept = append(kept, b)
			continue
		}
		swept.Files++
		swept.Bytes += b.Size
	}
	return kept, refused.first
}

func (s *Store) sweep(ctx context.Context, key string) (deleted bool, err error) {
	begin := time.Now()
	reply, err := s.db.Run(ctx, doomScript, key, doomFor.Milliseconds())
	if err != nil {
		return false, fmt.Errorf("files: sweep: %w", err)
	}
	if reply[0] != "ok" {
		return false, nil
	}
	if time.Since(begin) < deleteWithin {
		if err = s.storage.Delete(ctx, key); err == nil {
			deleted = true
		}
	}
	_, spareErr := s.db.Run(ctx, spareScript, key)
	return deleted, errors.Join(err, spareErr)
}
