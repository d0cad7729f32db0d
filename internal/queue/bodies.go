package queue

import (
	"context"
	"errors"

	"github.com/klauspost/compress/zstd"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// foldedBy limits how far compression may reduce what a body counts for: to
	// this fraction of its size at most. A body that repeats one letter a million
	// times takes no space while it waits, but its full size in each listing.
	foldedBy = 16
	// fewBodies is how many bodies EachBody reads at a time: they may be large.
	fewBodies = 4
)

// weigh returns the bytes that a stored body counts for while it waits.
func weigh(b job.Body, stored, sealed []byte) int64 {
	plain := len(b.Prompt) + len(b.Extra) + len(b.Targets) + len(b.Inputs)
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

// unpackedSize returns how much memory a stored value needs, besides itself, once
// it is read: no less, and little more. The header of a short value does not state
// its size. If it counted as the largest, it would wait for the memory of all large
// bodies.
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

// EachBody passes the bodies of the live ones among the jobs to use, in the order
// of the keys, with only a few of them in memory at a time. It ends at the first
// error of use.
func (q *Queue) EachBody(ctx context.Context, keys []string, use func(StoredBody) error) error {
	for begin := 0; begin < len(keys); begin += fewBodies {
		part := keys[begin:min(begin+fewBodies, len(keys))]
		reads := make([]*redis.StringCmd, len(part))
		err := q.pipeline(ctx, len(part), fewBodies, func(p redis.Pipeliner, i int) {
			reads[i] = p.Get(ctx, q.keys.body(part[i]))
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
			if err := use(StoredBody{Key: part[i], stored: stored, codec: q.codec}); err != nil {
				return err
			}
		}
	}
	return nil
}
