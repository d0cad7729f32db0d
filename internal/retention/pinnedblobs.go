package retention

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// PinnedBlobs knows the blobs that waiting and running jobs need. It reads the body of each job
// once: a job's body never changes, and with thousands of waiting jobs all bodies would otherwise
// be read again several times a minute. What it keeps about jobs that have ended is dropped at the
// next look.
type PinnedBlobs struct {
	Live func(ctx context.Context) (keys []string, err error)
	Each func(ctx context.Context, keys []string, use func(queue.StoredBody) error) error

	Turn *semaphore.Weighted
	// Jobs are the blobs of each live job, nil for those without.
	Jobs map[string][]string
}

// All returns the blobs.
func (p *PinnedBlobs) All(ctx context.Context) (map[string]bool, error) {
	if err := p.Turn.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer p.Turn.Release(1)
	keys, err := p.Live(ctx)
	if err != nil {
		return nil, err
	}
	now := make(map[string][]string, len(keys))
	var unread []string
	for _, key := range keys {
		if blobs, known := p.Jobs[key]; known {
			now[key] = blobs
		} else {
			unread = append(unread, key)
		}
	}
	err = p.Each(ctx, unread, func(stored queue.StoredBody) error {
		blobs, err := blobsOf(stored)
		if err == nil {
			now[stored.Key] = blobs
		}
		return err // what cannot be read may be needed
	})
	p.Jobs = now
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, blobs := range now {
		for _, blob := range blobs {
			all[blob] = true
		}
	}
	return all, nil
}

func blobsOf(stored queue.StoredBody) ([]string, error) {
	body, err := stored.Read()
	if err != nil || len(body.Inputs) == 0 {
		return nil, err
	}
	in, err := files.DecodeInputs(body.Inputs)
	if err != nil {
		return nil, err
	}
	pins, err := files.DecodePins(in.Pins)
	if err != nil {
		return nil, err
	}
	return pins.Keys(), nil
}
