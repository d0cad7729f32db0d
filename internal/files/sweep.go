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
func (r *Retention) Sweep(ctx context.Context, part int, now time.Time, age time.Duration, pinned Pinned) (Swept, error) {
	pinned = pinned.once()
	before := now.Add(-max(age, holdFor))
	var swept Swept
	var refused refusal
	for _, prefix := range [...]string{contentPrefix, outputPrefix} {
		var old []Blob
		err := r.store.storage.List(ctx, prefix+fmt.Sprintf("%02x/", part), func(b Blob) error {
			if !b.Modified.After(before) {
				old = append(old, b)
			}
			return nil
		})
		if err != nil {
			return swept, err
		}
		for batch := range slices.Chunk(old, sweepBatch) {
			_, err := r.store.blobs.sweepUnnamed(ctx, batch, pinned, &swept)
			if err := refused.past(err); err != nil {
				return swept, err
			}
		}
	}
	return swept, errors.Join(refused.first, r.store.grants.sweep(ctx, part, now))
}
