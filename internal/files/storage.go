package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/gcerrors"
)

// Storage keeps blobs by key, in a folder or an object store. It streams both
// ways and never holds a whole blob in memory. It is safe for concurrent use,
// also by several hubs.
type Storage struct{ bucket *blob.Bucket }

// OpenStorage opens a storage by its URL: a plain path or file:///path for a
// folder, which is created when it is missing, or the URL of an object store
// whose driver the program was linked with.
func OpenStorage(ctx context.Context, location string) (*Storage, error) {
	dir, err := folderOf(location)
	if err != nil {
		return nil, err
	}
	if dir == "" {
		bucket, err := blob.OpenBucket(ctx, location)
		if err != nil {
			return nil, fmt.Errorf("%w: open: %w", ErrStorage, err)
		}
		return &Storage{bucket}, nil
	}
	bucket, err := fileblob.OpenBucket(dir, &fileblob.Options{
		CreateDir: true,
		// Pictures are private: only the hub's own user reads them.
		DirFileMode: 0o700,
		// Temporary files next to the final ones, because a rename does not
		// work across mounts, and without it a write is not atomic.
		NoTempDir: true,
		Metadata:  fileblob.MetadataDontWrite,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: open: %w", ErrStorage, err)
	}
	return &Storage{bucket}, nil
}

// folderOf returns the folder that a location names, "" for an object store.
func folderOf(location string) (string, error) {
	if location == "" {
		return "", errors.New("files: storage has no location")
	}
	if !strings.Contains(location, "://") {
		return location, nil
	}
	u, err := url.Parse(location)
	if err != nil {
		return "", fmt.Errorf("files: storage: %w", err)
	}
	if u.Scheme != fileblob.Scheme {
		return "", nil
	}
	if (u.Host != "" && u.Host != ".") || u.Path == "" {
		return "", fmt.Errorf("files: storage: want file:///folder, got %q", location)
	}
	if u.Host == "." {
		return filepath.FromSlash("." + u.Path), nil
	}
	return filepath.FromSlash(u.Path), nil
}

// Close releases the storage; open readers stay valid.
func (s *Storage) Close() error { return s.bucket.Close() }

// Blob describes a stored blob.
type Blob struct {
	Key      string
	Size     int64 // bytes
	Modified time.Time
}

// Write stores all of r under the key and returns its length in bytes. The blob
// appears whole or not at all, replacing an older one of the key. On a folder it
// is on disk when Write returns.
func (s *Storage) Write(ctx context.Context, key string, r io.Reader) (int64, error) {
	return s.write(ctx, key, r, false)
}

// Create is Write for a key that has no blob yet; created is false when there
// is one, which stays as it is.
func (s *Storage) Create(ctx context.Context, key string, r io.Reader) (created bool, err error) {
	_, err = s.write(ctx, key, r, true)
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return false, nil
	}
	return err == nil, err
}

func (s *Storage) write(ctx context.Context, key string, r io.Reader, once bool) (int64, error) {
	// Ending the context before Close is how a write is given up; a blob cut
	// in the middle must never appear.
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	var file *os.File
	w, err := s.bucket.NewWriter(ctx, key, &blob.WriterOptions{
		DisableContentTypeDetection: true,
		IfNotExist:                  once,
		BeforeWrite: func(as func(any) bool) error {
			as(&file)
			return nil
		},
	})
	if err != nil {
		return 0, fmt.Errorf("%w: write: %w", ErrStorage, err)
	}
	from := &sourceReader{r: r}
	n, err := io.Copy(w, from)
	if err == nil && file != nil {
		// Without it a power cut could leave a named file of the right length
		// and wrong bytes.
		err = file.Sync()
	}
	if err != nil {
		abort()
		_ = w.Close()
		if from.err != nil {
			return n, from.err
		}
		return n, fmt.Errorf("%w: write: %w", ErrStorage, err)
	}
	if err := w.Close(); err != nil {
		return n, fmt.Errorf("%w: write: %w", ErrStorage, err)
	}
	return n, nil
}

// sourceReader remembers that it was the reading side that failed: an instance
// that breaks off is no fault of the storage.
type sourceReader struct {
	r   io.Reader
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// Open reads length bytes of a blob from offset on, all that follow when length
// is negative. A missing blob is ErrGone.
func (s *Storage) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	r, err := s.bucket.NewRangeReader(ctx, key, offset, length, nil)
	if err != nil {
		return nil, storageError("read", err)
	}
	return r, nil
}

// Stat describes a blob; a missing one is ErrGone.
func (s *Storage) Stat(ctx context.Context, key string) (Blob, error) {
	a, err := s.bucket.Attributes(ctx, key)
	if err != nil {
		return Blob{}, storageError("stat", err)
	}
	return Blob{Key: key, Size: a.Size, Modified: a.ModTime}, nil
}

// Delete removes a blob; one that is not there is no error.
func (s *Storage) Delete(ctx context.Context, key string) error {
	err := s.bucket.Delete(ctx, key)
	if err == nil || gcerrors.Code(err) == gcerrors.NotFound {
		return nil
	}
	return storageError("delete", err)
}

// List calls each for every blob whose key begins with prefix, in order of the
// keys, until each returns an error.
func (s *Storage) List(ctx context.Context, prefix string, each func(Blob) error) error {
	for it := s.bucket.List(&blob.ListOptions{Prefix: prefix}); ; {
		o, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return storageError("list", err)
		}
		if err := each(Blob{Key: o.Key, Size: o.Size, Modified: o.ModTime}); err != nil {
			return err
		}
	}
}

func storageError(doing string, err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrStorage, doing, err)
}
