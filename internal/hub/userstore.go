package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/userdata"
)

// userBlobs is the hub's storage in the form that package userdata needs.
type userBlobs struct{ *files.Storage }

// Open implements userdata.Storage.
func (b userBlobs) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	body, err := b.Storage.Open(ctx, key, offset, length)
	return body, missing(err)
}

// Stat implements userdata.Storage.
func (b userBlobs) Stat(ctx context.Context, key string) (userdata.Blob, error) {
	blob, err := b.Storage.Stat(ctx, key)
	return userdata.Blob(blob), missing(err)
}

// List implements userdata.Storage.
func (b userBlobs) List(ctx context.Context, prefix string, each func(userdata.Blob) error) error {
	return b.Storage.List(ctx, prefix, func(blob files.Blob) error { return each(userdata.Blob(blob)) })
}

func missing(err error) error {
	if errors.Is(err, files.ErrGone) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}
