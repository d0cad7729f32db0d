package files

import (
	"context"
	"fmt"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
)

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
		s.bucket.Store(bucket)
		return s, nil
	}
	return newStorage(dir), nil
}

// blobs returns the bucket, for a request that begins with a step.
func (s *Storage) blobs(ctx context.Context, step Step) (*blob.Bucket, error) {
	if err := s.pass(ctx, step, 0); err != nil {
		return nil, err
	}
	if bucket := s.bucket.Load(); bucket != nil {
		return bucket, nil
	}
	bucket, err := fileblob.OpenBucket(s.dir, &fileblob.Options{
		// A folder that has a mark is not new; if it is missing, it is not mounted.
		CreateDir: !s.health.isMarked(),
		// Pictures are private: only the hub's own user reads them.
		DirFileMode: 0o700,
		// Temporary files are put next to the final ones, because a rename does not work across
		// mounts, and a write is not atomic without one.
		NoTempDir: true,
		Metadata:  fileblob.MetadataDontWrite,
	})
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	// Another request may have been faster; either is fine.
	s.bucket.Store(bucket)
	return bucket, nil
}

func newStorage(dir string) *Storage {
	s := &Storage{dir: dir}
	s.health = newHealth(s)
	return s
}
