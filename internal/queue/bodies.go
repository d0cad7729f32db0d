package queue

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// foldedBy limits how far compression may reduce what a body counts for: to this fraction of
	// its size at most. A body that repeats one letter a million times takes no space while it
	// waits, but takes its full size in each listing.
	foldedBy = 16
	// EachBody reads at most manyBodies bodies at a time, and no more than bodiesAtOnce bytes
	// unless a single one is larger.
	manyBodies   = 64
	bodiesAtOnce = 1 << 20
	// unknownWeight is what a body counts for there if a version before weights stored it.
	unknownWeight = bodiesAtOnce / 4
)

// weigh returns the bytes that a stored body counts for while it waits.
func weigh(b job.Body, stored, sealed []byte) int64 {
	plain := len(b.Prompt) + len(b.Extra) + len(b.Targets) + len(b.Inputs) + len(b.Other)
	return int64(max(len(stored)+len(sealed), plain/foldedBy))
}

// StoredBody is the body of a live job, still compressed.
type StoredBody struct {
	Key    string
	stored []byte
	codec  *codec
}

// Size returns roughly how many bytes Read needs.
func (s StoredBody) Size() int64 { return unpackedSize(s.stored) }

// maxBlock is the largest zstd block, in bytes.
const maxBlock = 128 << 10

// unpackedSize returns how much memory a stored value needs, besides itself, once it is read: no
// less, and not much more. The header of a short value does not state its size. If it counted as
// the largest possible, it would have to wait for the memory of all large bodies.
func unpackedSize(stored []byte) int64 {
	var head zstd.Header
	err := head.Decode(stored)
	switch {
	case err == nil && head.HasFCS && head.FrameContentSize <= maxUnpacked:
		return int64(len(stored)) + int64(head.FrameContentSize)
	case err == nil && !head.HasFCS && head.FirstBlock.OK && head.FirstBlock.Last:
		return int64(len(stored)) + maxBlock
	}
	return maxUnpacked // unknown or unreadable
}

// Read returns the body without its secrets and requirements. Errors: ErrCorrupt.
func (s StoredBody) Read() (job.Body, error) { return s.codec.decodeBody(s.stored) }

// EachBody passes the bodies of those jobs that are live to use, in the order of the keys, with
// about a megabyte of them in memory at a time. It stops at the first error of use.
func (q *store) EachBody(ctx context.Context, keys []string, use func(StoredBody) error) error {
	for part := range slices.Chunk(keys, batchSize) {
		weights, err := q.weights(ctx, part)
		if err != nil {
			return err
		}
		for begin := 0; begin < len(part); {
			end, sum := begin+1, weights[begin]
			for end < len(part) && end-begin < manyBodies && sum+weights[end] <= bodiesAtOnce {
				sum += weights[end]
				end++
			}
			if err := q.passBodies(ctx, part[begin:end], use); err != nil {
				return err
			}
			begin = end
		}
	}
	return nil
}

// weights returns upper bounds of the sizes of stored bodies, see weigh.
func (q *store) weights(ctx context.Context, keys []string) ([]int64, error) {
	records, err := q.records(ctx, keys, "weight")
	if err != nil {
		return nil, err
	}
	weights := make([]int64, len(keys))
	for i, r := range records {
		weights[i], err = strconv.ParseInt(r["weight"], 10, 64)
		if err != nil {
			weights[i] = unknownWeight
		}
	}
	return weights, nil
}

// passBodies reads bodies in one round trip and passes them to use.
func (q *store) passBodies(ctx context.Context, keys []string, use func(StoredBody) error) error {
	reads := make([]*redis.StringCmd, len(keys))
	err := q.pipeline(ctx, len(keys), manyBodies, func(p redis.Pipeliner, i int) {
		reads[i] = p.Get(ctx, q.keys.body(keys[i]))
	})
	if err != nil {
		return err
	}
	for i, read := range reads {
		if errors.Is(read.Err(), redis.Nil) {
			continue
		}
		stored, err := read.Bytes()
		if err != nil {
			return err
		}
		if err := use(StoredBody{Key: keys[i], stored: stored, codec: q.codec}); err != nil {
			return err
		}
	}
	return nil
}

// Held returns how many bytes the body takes in memory while it is kept.
func (s StoredBody) Held() int64 { return int64(len(s.Key) + len(s.stored)) }
