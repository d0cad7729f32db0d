package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// holdFor is how long a blob without a name is kept. It covers the writing of the largest upload
// and the time from a pin to the queue.
const holdFor = time.Hour

const (
	// doomFor bounds how long others wait for one deletion. deleteWithin is well below that: a
	// sweep that slept on the way must not delete what was taken up again meanwhile.
	doomFor      = time.Minute
	deleteWithin = 30 * time.Second
	// sweepBatch is how many names are looked up at once.
	sweepBatch = 500
)

// blobs keep one law between hubs: what somebody holds, or what has a name, is not deleted.
type blobs struct {
	db      *redis.DB
	storage *Storage
}

// write stores a blob under its content's key unless it is already there. The key must be
// held.
func (b blobs) write(ctx context.Context, key string, sp *spool) error {
	if b.has(ctx, key, sp) {
		return nil
	}
	_, err := b.storage.Write(ctx, key, sp.reader())
	return err
}

// has reports whether a blob is there. In a folder its bytes are looked at: a disk that lost
// power may have kept the size alone, and whoever uploads the file again must not get that.
func (b blobs) has(ctx context.Context, key string, sp *spool) bool {
	if b.storage.Remote() {
		there, err := b.storage.Stat(ctx, key)
		return err == nil && there.Size == sp.size
	}
	body, err := b.storage.OpenSized(ctx, key, sp.size, 0, -1)
	if err != nil {
		return false
	}
	defer body.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, body)
	return err == nil && hex.EncodeToString(hash.Sum(nil)) == sp.sha256
}

// hold keeps blobs from being swept for holdFor. It waits while one of them is being deleted.
func (b blobs) hold(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	args := []any{holdFor.Milliseconds()}
	for _, key := range keys {
		args = append(args, key)
	}
	for {
		reply, err := b.db.Run(ctx, holdScript, args...)
		if err != nil {
			return fmt.Errorf("files: hold: %w", err)
		}
		if reply[0] == "ok" {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// sweepUnnamed deletes those of the blobs that have no name, and returns the nameless ones that
// have to be kept for now: a job has them pinned, somebody holds them, or the storage refuses to
// delete them, which is an ErrStorage once the others are deleted.
func (b blobs) sweepUnnamed(ctx context.Context, old []Blob, pinned Pinned, swept *Swept) (kept []Blob, err error) {
	keys := make([]string, len(old))
	for i, blob := range old {
		keys[i] = blob.Key
	}
	names, err := b.db.Client().HMGet(ctx, b.db.Key("files", "refs"), keys...).Result()
	if err != nil {
		return nil, fmt.Errorf("files: sweep: %w", err)
	}
	var refused refusal
	for i, blob := range old {
		if names[i] != nil {
			continue
		}
		needed, err := pinned(ctx)
		if err != nil {
			return nil, err
		}
		deleted := false
		if !needed[blob.Key] {
			deleted, err = b.sweep(ctx, blob.Key)
			if err := refused.past(err); err != nil {
				return nil, err
			}
		}
		if !deleted {
			kept = append(kept, blob)
			continue
		}
		swept.Files++
		swept.Bytes += blob.Size
	}
	return kept, refused.first
}

func (b blobs) sweep(ctx context.Context, key string) (deleted bool, err error) {
	begin := time.Now()
	reply, err := b.db.Run(ctx, doomScript, key, doomFor.Milliseconds())
	if err != nil {
		return false, fmt.Errorf("files: sweep: %w", err)
	}
	if reply[0] != "ok" {
		return false, nil
	}
	if time.Since(begin) < deleteWithin {
		if err = b.storage.Delete(ctx, key); err == nil {
			deleted = true
		}
	}
	_, spareErr := b.db.Run(ctx, spareScript, key)
	return deleted, errors.Join(err, spareErr)
}
