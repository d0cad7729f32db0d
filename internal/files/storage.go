package files

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"gocloud.dev/gcerrors"
)

// Storage keeps blobs by key, in a folder or an object store. It streams both ways and never holds
// a whole blob in memory. It is safe for concurrent use, even by several hubs. The hubs' own keys
// are in the same place, and only a [KeyStore] reaches them.
type Storage struct{ backend *backend }

// OpenStorage opens a storage by its location: a plain path or file:///path for a folder, or
// s3://bucket for an object store; see CheckLocation. It does not touch the storage, which may be
// away: requests fail with ErrStorage until it is there. The first one creates a missing folder,
// unless the storage is known to have a mark.
func OpenStorage(ctx context.Context, location string) (*Storage, error) {
	dir, err := folderOf(location)
	if err != nil {
		return nil, fmt.Errorf("files: storage: %w", err)
	}
	if dir == "" {
		bucket, err := openBucket(ctx, location)
		if err != nil {
			return nil, fmt.Errorf("%w: open: %w", ErrStorage, err)
		}
		s := newStorage("")
		s.backend.bucket.Store(bucket)
		return s, nil
	}
	return newStorage(dir), nil
}

func newStorage(dir string) *Storage {
	b := &backend{dir: dir}
	b.health = newHealth(b)
	return &Storage{b}
}

// Health is the storage's state.
func (s *Storage) Health() *Health { return s.backend.health }

// Remote reports whether the storage is an object store, which may be away for a while, rather than
// a folder.
func (s *Storage) Remote() bool { return s.backend.dir == "" }

// Dir returns the folder of the storage, "" for an object store.
func (s *Storage) Dir() string { return s.backend.dir }

// Close releases the storage; open readers stay valid. A folder has nothing to release, and closing
// its bucket would wait for requests that hang in the file system.
func (s *Storage) Close() error {
	if s.backend.dir != "" {
		return nil
	}
	return s.backend.bucket.Load().Close()
}

// Blob describes a stored blob.
type Blob struct {
	Key      string
	Size     int64 // bytes
	Modified time.Time
}

// Write stores all of r under the key and returns its length in bytes. The blob appears whole or
// not at all, replacing an older one with the same key. In a folder it is on disk when Write
// returns.
func (s *Storage) Write(ctx context.Context, key string, r io.Reader) (int64, error) {
	if isSecret(key) {
		return 0, errSecret
	}
	return s.backend.write(ctx, key, r, writeOptions{})
}

// Create is Write for a key that has no blob yet; created is false if there is one, which stays as
// it is.
func (s *Storage) Create(ctx context.Context, key string, r io.Reader) (created bool, err error) {
	if isSecret(key) {
		return false, errSecret
	}
	_, err = s.backend.write(ctx, key, r, writeOptions{once: true})
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return false, nil
	}
	return err == nil, err
}

// Open reads length bytes of a blob from offset on, or everything after it if length is negative. A
// missing blob is ErrGone.
func (s *Storage) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if isSecret(key) {
		return nil, errSecret
	}
	return s.backend.open(ctx, key, offset, length)
}

// OpenSized is Open for a blob that had a size when it was written. One that has another is ErrGone:
// a storage that lost power may have lost the end of what it said it had synced.
func (s *Storage) OpenSized(ctx context.Context, key string, size, offset, length int64) (io.ReadCloser, error) {
	if isSecret(key) {
		return nil, errSecret
	}
	r, err := s.backend.open(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	if r == http.NoBody && offset < size {
		return nil, fmt.Errorf("%w: it is shorter than %d bytes", ErrGone, size)
	}
	if sized, ok := r.(interface{ Size() int64 }); ok && size >= 0 && sized.Size() != size {
		_ = r.Close()
		return nil, fmt.Errorf("%w: it has %d of %d bytes", ErrGone, sized.Size(), size)
	}
	return r, nil
}

// Stat describes a blob; a missing one is ErrGone.
func (s *Storage) Stat(ctx context.Context, key string) (Blob, error) {
	if isSecret(key) {
		return Blob{}, errSecret
	}
	return s.backend.stat(ctx, key)
}

// Delete removes a blob; it is not an error if there is none.
func (s *Storage) Delete(ctx context.Context, key string) error {
	if isSecret(key) {
		return errSecret
	}
	return s.backend.remove(ctx, key)
}

// List calls each for every blob whose key begins with prefix, in the order of the keys, until each
// returns an error.
func (s *Storage) List(ctx context.Context, prefix string, each func(Blob) error) error {
	return s.backend.list(ctx, prefix, func(b Blob) error {
		if isSecret(b.Key) {
			return nil
		}
		return each(b)
	})
}
