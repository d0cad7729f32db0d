package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// blockSize is how many numbers the storage grants at a time. It must equal the one in
	// scripts/blocks.lua. After a restart of Redis, at most that many are skipped.
	blockSize = 16
	// rememberBlocks is how long Redis remembers which blocks were granted, counted from the last
	// new one of a folder. What it has forgotten counts as granted to another epoch.
	rememberBlocks = 30 * 24 * time.Hour
	// keepBlocks is how long the storage keeps a block. A Redis that lost the writes of that long a
	// time would give its names again.
	keepBlocks = 60 * 24 * time.Hour
	// maxReservations bounds how often one call asks for blocks; each time reaches twice as far.
	maxReservations = 40
	maxEpoch        = 100 // bytes read of a block
)

// blockPrefix begins the keys of granted blocks.
const blockPrefix = "names/"

// block is some numbers of a series of names, such as ComfyUI_00016_.png to
// ComfyUI_00031_.png.
type block struct {
	typ, dir string
	series   string
	number   int64
}

func (b block) key(tenant string) string {
	sum := sha256.Sum256([]byte(redis.Pack(tenant, b.typ, b.dir, b.series, strconv.FormatInt(b.number, 10))))
	id := hex.EncodeToString(sum[:])
	return blockPrefix + id[:2] + "/" + id
}

// blocksOf reads the blocks that a script asks for.
func blocksOf(reply []string) ([]block, error) {
	var out []block
	for ; len(reply) >= 4; reply = reply[4:] {
		n, err := strconv.ParseInt(reply[3], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("files: block of names: %w", err)
		}
		out = append(out, block{reply[0], reply[1], reply[2], n})
	}
	return out, nil
}

// grants keep one law: the storage grants each number once, whatever Redis has forgotten.
type grants struct {
	db      *redis.DB
	storage *Storage
}

// reserve asks the storage for blocks of numbers, and notes in Redis which ones it granted. The
// storage decides, because only it still knows what was given once Redis has lost its last writes.
// refused counts the refusals of each series: each one makes the next try go twice as far.
func (g grants) reserve(ctx context.Context, tenant, epoch string, blocks []block, refused map[block]int) error {
	args := []any{epoch, rememberBlocks.Milliseconds(), tenant}
	for _, b := range blocks {
		granted, err := g.grant(ctx, b.key(tenant), epoch)
		if err != nil {
			return err
		}
		after := ""
		if !granted {
			series := b
			series.number = 0
			after = strconv.FormatInt((b.number+1<<min(refused[series], maxReservations))*blockSize-1, 10)
			refused[series]++
		}
		args = append(args, b.typ, b.dir, b.series, strconv.FormatInt(b.number, 10), after)
	}
	if _, err := g.db.Run(ctx, reserveScript, args...); err != nil {
		return fmt.Errorf("files: reserve names: %w", err)
	}
	return nil
}

// grant reports whether a block belongs, or now comes to belong, to this epoch.
func (g grants) grant(ctx context.Context, key, epoch string) (bool, error) {
	for {
		holder, err := g.storage.ownFile(ctx, key, maxEpoch)
		if err == nil {
			return holder == epoch, nil
		}
		if !errors.Is(err, ErrGone) {
			return false, err
		}
		created, err := g.storage.Create(ctx, key, strings.NewReader(epoch))
		if created || err != nil {
			return created, err
		}
		// Another hub was faster, for the same epoch or for another.
	}
}

// sweep deletes the blocks of a part of the storage that were granted long ago.
func (g grants) sweep(ctx context.Context, part int, now time.Time) error {
	if g.db.Embedded() {
		return nil // it asks for none
	}
	before := now.Add(-keepBlocks)
	return g.storage.List(ctx, blockPrefix+fmt.Sprintf("%02x/", part), func(b Blob) error {
		if b.Modified.After(before) {
			return nil
		}
		return g.storage.Delete(ctx, b.Key)
	})
}
