package keyring

import (
	"context"
	"fmt"
)

// adoptedPrefix begins the names of objects that say that the unsigned records of a kind have
// been signed.
const adoptedPrefix = "adopted-"

// Generations of records: a kind of the second was not signed by hubs that sign the first.
const (
	MarksOfKeys     = 1
	MarksOfMachines = 2

	marksNow = MarksOfMachines
)

// Adopt calls sign once in the life of a store: it is to sign the records that a version
// before the marks of its generation has made. After that, an unsigned record is somebody
// else's. If sign fails, or the hub is killed meanwhile, the next call tries again. Errors:
// those of sign, ErrUnavailable.
func (r *Records) Adopt(ctx context.Context, generation int, sign func(context.Context) error) error {
	keys := *r.ring.keys.Load()
	if len(keys) == 0 {
		return ErrUnavailable
	}
	if keys[0].marks >= generation {
		return nil // the whole ring is younger than the marks, or Adopt was called before
	}
	own := adoptedPrefix + r.kind
	_, found, err := r.ring.store.Read(ctx, own)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if found {
		return nil
	}
	if err := sign(ctx); err != nil {
		return err
	}
	if err := r.ring.store.Write(ctx, own, []byte("{}\n")); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}
