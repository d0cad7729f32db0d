package userdata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/comfyhub/comfyhub/internal/files"
)

// Blobs is the hub's storage as a [Storage].
type Blobs struct{ *files.Storage }

// Open implements [Storage].
func (b Blobs) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	body, err := b.Storage.Open(ctx, key, offset, length)
	return body, missing(err)
}

// Stat implements [Storage].
func (b Blobs) Stat(ctx context.Context, key string) (Blob, error) {
	blob, err := b.Storage.Stat(ctx, key)
	return Blob(blob), missing(err)
}

// List implements [Storage].
func (b Blobs) List(ctx context.Context, prefix string, each func(Blob) error) error {
	return b.Storage.List(ctx, prefix, func(blob files.Blob) error { return each(Blob(blob)) })
}

func missing(err error) error {
	if errors.Is(err, files.ErrGone) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}
