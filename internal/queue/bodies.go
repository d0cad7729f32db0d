package queue

import (
	"context"
	"errors"

	"github.com/klauspost/compress/zstd"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// foldedBy is how many times smaller than itself a body is counted at
	// least. One that is a single letter a million times takes no room while it
	// waits, but all of its size in each listing.
	foldedBy = 16
	// fewBodies are read at a time for EachBody: they may be large.
	fewBodies = 4
)

// weigh gives the bytes that a stored body counts for while it waits.
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

// Size is about the number of bytes that Read takes.
func (s StoredBody) Size() int64 { return unpackedSize(s.stored) }

// maxBlock is the most that a block of zstd holds, in bytes.
const maxBlock = 128 << 10

// unpackedSize is what a stored value takes once it is read, beside itself: no
// less, and little more. The size of a short one is not in its header. Counted
// as the largest, it would wait for the memory of all large bodies.
func unpackedSize(stored []byte) int64 {
	var head zstd.Header
	err := head.Decode(stored)
	switch {
	case err == nil && head.HasFCS && head.FrameContentSize <= maxUnpacked:
		return int64(len(stored)) + int64(head.FrameContentSize)
	case err == nil && !head.HasFCS && head.FirstBlock.OK && head.FirstBlock.Last:
		return int64(len(stored)) + maxBlock
	}
	return maxUnpacked // it cannot be told, or cannot be read
}

// Read gives the body without its secrets and requirements. Errors: ErrCorrupt.
func (s StoredBody) Read() (job.Body, error) { return s.codec.decodeBody(s.stored) }

// EachBody gives the bodies of those of the jobs that are live, in the order of
// the keys, few of them in memory at a time. It ends at the first error of use.
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
