package files

import (
	"context"
	"fmt"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// Retention deletes files that are too old or too much, and bytes that have no name.
type Retention struct{ store *Store }

// NewRetention makes the Retention of a store.
func NewRetention(store *Store) *Retention { return &Retention{store} }

// Pinned returns the keys of the blobs that waiting or running jobs have pinned. It is called only
// if there is something to delete.
type Pinned func(context.Context) (map[string]bool, error)

// once calls p at most once.
func (p Pinned) once() Pinned {
	var keys map[string]bool
	asked := false
	return func(ctx context.Context) (_ map[string]bool, err error) {
		if !asked {
			if keys, err = p(ctx); err != nil {
				return nil, err
			}
			asked = true
		}
		return keys, nil
	}
}

// expireBatch bounds what is read at once, expireMost what one call removes: the rest is left to
// the next call.
const (
	expireBatch = 100
	expireMost  = 5000
)

// Expire removes the files of a type that were last used no later than until: those of the history
// (TypeOutput, which includes TypeTemp) or uploaded inputs (TypeInput). What a job has pinned stays
// and counts as used now. The bytes go as well, unless the trash keeps them.
func (r *Retention) Expire(ctx context.Context, typ string, until time.Time, pinned Pinned) (Swept, error) {
	return r.expireIn(ctx, r.store.keys.used(typ), until, r.store.grace.arg(), pinned)
}

// ExpireOwn is Expire for the outputs of one tenant that has too much: the trash keeps none of
// them.
func (r *Retention) ExpireOwn(ctx context.Context, tenant string, until time.Time, pinned Pinned) (Swept, error) {
	return r.expireIn(ctx, r.store.keys.outputs(tenant), until, "", pinned)
}

func (r *Retention) expireIn(ctx context.Context, index string, until time.Time, trash string, pinned Pinned) (Swept, error) {
	pinned = pinned.once()
	var swept Swept
	var refused refusal
	for range expireMost / expireBatch {
		members, err := r.store.db.Client().ZRangeByScore(ctx, index, &redis.ZRangeBy{
			Min: "-inf", Max: fmt.Sprint(until.UnixMilli()), Count: expireBatch,
		}).Result()
		if err != nil {
			return swept, fmt.Errorf("files: expire: %w", err)
		}
		if len(members) == 0 {
			break
		}
		for _, member := range members {
			if err := refused.past(r.expire(ctx, member, until, trash, pinned, &swept)); err != nil {
				return swept, err
			}
		}
	}
	return swept, refused.first
}

func (r *Retention) expire(ctx context.Context, member string, until time.Time, trash string, pinned Pinned, swept *Swept) error {
	tenant, p, err := indexed(member)
	if err != nil {
		return err
	}
	e, removed, err := r.store.remove(ctx, tenant, p, removal{until: until, trash: trash, spared: func(e Entry) (bool, error) {
		keys, err := pinned(ctx)
		if err != nil || !keys[e.Key] {
			return false, err
		}
		_, err = r.store.db.Run(ctx, useScript, tenant, p.typ, p.dir, p.name)
		return true, err
	}})
	if err != nil || !removed {
		return err
	}
	swept.Files++
	if !e.Stored() || trash != "" {
		return nil
	}
	deleted, err := r.store.blobs.sweep(ctx, e.Key)
	if deleted {
		swept.Bytes += e.Size
	}
	return err
}
