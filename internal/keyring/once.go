package keyring

import (
	"context"
	"fmt"
)

// adoptedPrefix begins the names of objects that say that records without a mark, of
// versions before the marks, have been signed. bornSigned says it of all kinds: the ring is
// younger than the marks.
const (
	adoptedPrefix = "adopted-"
	bornSigned    = adoptedPrefix + "all"
)

// Adopt calls sign once in the life of a store: it is to sign the records that a version
// before the marks has made. After that, an unsigned record is somebody else's. If sign
// fails, or the hub is killed meanwhile, the next call tries again. Errors: those of sign,
// ErrUnavailable.
func (r *Records) Adopt(ctx context.Context, sign func(context.Context) error) error {
	own := adoptedPrefix + r.kind
	for _, name := range []string{own, bornSigned} {
		_, found, err := r.ring.store.Read(ctx, name)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		if found {
			return nil
		}
	}
	if err := sign(ctx); err != nil {
		return err
	}
	if err := r.ring.store.Write(ctx, own, []byte("{}\n")); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}
