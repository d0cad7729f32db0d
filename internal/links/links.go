// Package links makes and opens links to files that work for whoever has them.
package links

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/keyring"
)

// ErrNoFile says that the tenant has no such file, or that it is gone.
var ErrNoFile = errors.New("hub: no such file")

// File is a stored file.
type File struct {
	Ref      job.FileRef
	ETag     string
	Modified time.Time
	Size     int64 // bytes
	// Open reads length bytes from offset on.
	Open func(ctx context.Context, offset, length int64) (io.ReadCloser, error)
}

// noFile adds ErrNoFile to the errors that mean it.
func noFile(err error) error {
	if errors.Is(err, files.ErrNotFound) || errors.Is(err, files.ErrGone) {
		return fmt.Errorf("%w: %w", ErrNoFile, err)
	}
	return err
}

// Files finds tenants' files and reads them.
type Files interface {
	Show(ctx context.Context, tenant string, ref job.FileRef) (files.Entry, error)
	Open(ctx context.Context, e files.Entry, offset, length int64) (io.ReadCloser, error)
}

// Links makes links to tenants' files that work for whoever has them until they expire, and opens
// them.
type Links struct {
	store  Files
	signer *signer
}

// NewLinks makes links that a sealer signs.
func NewLinks(store Files, seal *keyring.Sealer) *Links { return &Links{store, newSigner(seal)} }

// File finds a tenant's file whose bytes the hub has. The errors are ErrNoFile and those of Redis.
func (l *Links) File(ctx context.Context, tenant string, ref job.FileRef) (File, error) {
	e, err := l.store.Show(ctx, tenant, ref)
	if err == nil && !e.Stored() {
		err = files.ErrGone
	}
	if err != nil {
		return File{}, noFile(err)
	}
	return File{
		Ref: e.Ref, ETag: e.ETag, Modified: e.Modified, Size: e.Size,
		Open: func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
			body, err := l.store.Open(ctx, e, offset, length)
			return body, noFile(err)
		},
	}, nil
}

// Make makes a link to a tenant's file: the file's name, escaped, and a query. The errors are
// ErrNoFile, keyring.ErrUnavailable, or one of Redis.
func (l *Links) Make(ctx context.Context, tenant string, ref job.FileRef, expires time.Time) (string, error) {
	f, err := l.File(ctx, tenant, ref)
	if err != nil {
		return "", err
	}
	return l.signer.link(tenant, f.Ref, time.Now(), expires)
}

// Open returns the file of a link, given the link's name, "exp" and "sig". The errors are
// ErrLinkForged, ErrLinkExpired, ErrLinkTooLong, ErrNoFile, keyring.ErrUnavailable, or one of
// Redis.
func (l *Links) Open(ctx context.Context, name, exp, sig string) (File, error) {
	tenant, ref, err := l.signer.open(ctx, name, exp, sig, time.Now())
	if err != nil {
		return File{}, err
	}
	f, err := l.File(ctx, tenant, ref)
	f.Ref = ref
	return f, err
}
