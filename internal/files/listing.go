package files

import (
	"context"
	"errors"
	"io"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// listTries is how often a listing goes on after a file has vanished.
const listTries = 100

// errVanished says that a listing met a file that was not there any more. In a folder,
// files vanish between the look at it and the one at them: what others are writing has
// another name at first.
var errVanished = errors.New("a file has vanished")

// listing passes on the blobs of a storage whose keys begin with a prefix.
type listing struct {
	backend *backend
	prefix  string
	each    func(Blob) error
	last    string // the key that was passed on last
}

// all passes on all blobs, each once, in the order of their keys.
func (l *listing) all(ctx context.Context) error {
	for range listTries {
		if err := l.rest(ctx); !errors.Is(err, errVanished) {
			return err
		}
	}
	return l.backend.failed(ctx, "list", l.prefix, errVanished)
}

// rest passes on those after the last one.
func (l *listing) rest(ctx context.Context) error {
	bucket, err := l.backend.blobs(ctx, StepList)
	if err != nil {
		return l.backend.failed(ctx, "list", l.prefix, err)
	}
	for it := bucket.List(&blob.ListOptions{Prefix: l.prefix}); ; {
		o, err := it.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case gcerrors.Code(err) == gcerrors.NotFound:
			return errVanished
		case err != nil:
			return l.backend.failed(ctx, "list", l.prefix, err)
		case o.Key <= l.last:
			continue
		}
		l.last = o.Key
		if err := l.each(Blob{Key: o.Key, Size: o.Size, Modified: o.ModTime}); err != nil {
			return err
		}
	}
}
