package files

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Excess is how a tenant's outputs take up too much.
type Excess struct {
	Tenant string
	// Until is a time: outputs last used no later than that must go.
	Until time.Time
}

// share is how much the outputs of a tenant take up.
type share struct {
	tenant string
	bytes  int64
}

// Excess returns what must go so that all outputs take up at most size bytes, and those of each
// tenant at most own; 0 means no bound. The tenants with the most pay. It looks at a limited number
// of files, so one call may not be enough.
func (r *Retention) Excess(ctx context.Context, size, own int64) ([]Excess, error) {
	shares, err := sharesIn(ctx, r.store.db, r.store.keys.shares())
	if err != nil {
		return nil, err
	}
	level := own
	if size > 0 {
		if fair, over := levelOf(shares, size); over && (own <= 0 || fair < own) {
			level = fair
		} else if own <= 0 {
			return nil, nil
		}
	}
	var all []Excess
	for _, sh := range shares {
		if sh.bytes <= level {
			break
		}
		until, err := r.excessOf(ctx, sh.tenant, sh.bytes-level)
		if err != nil {
			return nil, err
		}
		if !until.IsZero() {
			all = append(all, Excess{Tenant: sh.tenant, Until: until})
		}
	}
	return all, nil
}

// sharesIn reads how much tenants take up, the largest first.
func sharesIn(ctx context.Context, db *redis.DB, key string) ([]share, error) {
	ranked, err := db.Client().ZRevRangeWithScores(ctx, key, 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("files: shares: %w", err)
	}
	shares := make([]share, len(ranked))
	for n, z := range ranked {
		tenant, _ := z.Member.(string)
		shares[n] = share{tenant: tenant, bytes: int64(z.Score)}
	}
	return shares, nil
}

// levelOf returns the level that no share may exceed so that all of them, given largest first, add
// up to at most size; over is false if they do already.
func levelOf(shares []share, size int64) (level int64, over bool) {
	var total int64
	for _, sh := range shares {
		total += sh.bytes
	}
	if total <= size {
		return 0, false
	}
	// Starting from the smallest: whatever it leaves of its even part goes to the others.
	left, n := size, int64(len(shares))
	for _, sh := range slices.Backward(shares) {
		if sh.bytes > left/n {
			break
		}
		left -= sh.bytes
		n--
	}
	return left / n, true
}

// excessOf returns the last use up to which a tenant's outputs must go so that they take up bytes
// less.
func (r *Retention) excessOf(ctx context.Context, tenant string, bytes int64) (until time.Time, err error) {
	for at := int64(0); bytes > 0 && at < expireMost; at += expireBatch {
		oldest, err := r.store.db.Client().ZRangeWithScores(ctx, r.store.keys.outputs(tenant), at, at+expireBatch-1).Result()
		if err != nil {
			return time.Time{}, fmt.Errorf("files: excess: %w", err)
		}
		if len(oldest) == 0 {
			break
		}
		for _, z := range oldest {
			until = time.UnixMilli(int64(z.Score))
			_, p, err := indexed(z.Member.(string))
			if err != nil {
				return time.Time{}, err
			}
			e, err := r.store.resolve(ctx, tenant, p)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return time.Time{}, err
			}
			if e.Source != nil && e.Stored() {
				bytes -= e.Size
			}
			if bytes <= 0 {
				break
			}
		}
	}
	return until, nil
}

// Adopt counts outputs that hubs before this version have made toward their tenants. It may be run
// at any time.
func (r *Retention) Adopt(ctx context.Context) error {
	scan := r.store.db.Client().ZScan(ctx, r.store.keys.used(job.TypeOutput), 0, "", expireBatch).Iterator()
	var args []any
	flush := func() error {
		if len(args) == 0 {
			return nil
		}
		_, err := r.store.db.Run(ctx, adoptScript, args...)
		args = nil
		if err != nil {
			return fmt.Errorf("files: adopt: %w", err)
		}
		return nil
	}
	for scan.Next(ctx) {
		packed := scan.Val()
		if !scan.Next(ctx) { // its score
			break
		}
		tenant, p, err := indexed(packed)
		if err != nil {
			return err
		}
		args = append(args, tenant, p.typ, p.dir, p.name, r.store.keys.folder(tenant, p))
		if len(args) >= 5*expireBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("files: adopt: %w", err)
	}
	return flush()
}
