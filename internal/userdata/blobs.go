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

// OpenSized implements [Storage].
func (b Blobs) OpenSized(ctx context.Context, key string, size, offset, length int64) (io.ReadCloser, error) {
	body, err := b.Storage.OpenSized(ctx, key, size, offset, length)
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
