package keyring

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Rotation is the result of Rotate.
type Rotation struct {
	Key  string    // the id of the new key
	From time.Time // when it starts to seal
	Keys int       // how many keys open values now
}

// Rotate adds a key. All hubs learn of it within Spread and seal with it from then
// on; what older keys have sealed can be opened for Keep.
func (r *Ring) Rotate(ctx context.Context) (Rotation, error) {
	if err := wait(ctx, r.turn); err != nil {
		return Rotation{}, err
	}
	defer r.turn.Release(1)
	if err := r.read(ctx, false); err != nil {
		return Rotation{}, err
	}
	if len(*r.keys.Load()) >= maxKeys {
		return Rotation{}, ErrFull
	}
	k, err := r.add(ctx)
	if err != nil {
		return Rotation{}, err
	}
	return Rotation{Key: k.id.String(), From: k.created.Add(Spread), Keys: len(*r.keys.Load())}, nil
}

// Expire deletes the keys that were replaced more than Keep ago, and what only they
// needed. Records on shelves are signed again before; whoever keeps records elsewhere
// has to do so. Several hubs may run it at the same time.
func (r *Ring) Expire(ctx context.Context, now time.Time) error {
	if err := wait(ctx, r.turn); err != nil {
		return err
	}
	defer r.turn.Release(1)
	keys := *r.keys.Load()
	for n := 0; n+1 < len(keys); n++ {
		if now.Before(keys[n+1].created.Add(Spread + Keep)) {
			break // the younger ones were replaced even later
		}
		if n == 0 {
			if err := r.signShelves(ctx); err != nil {
				return err
			}
		}
		if err := r.store.Delete(ctx, keys[n].name); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		r.log.Info("deleted a key that was replaced long ago", "key", keys[n].id.String())
		left := slices.Clone(keys[n+1:])
		r.keys.Store(&left)
		if err := r.expireRevoked(ctx); err != nil {
			return err
		}
	}
	return nil
}
