package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// Storage keeps blobs by key, in a folder or an object store. It streams both ways and never holds
// a whole blob in memory. It is safe for concurrent use, even by several hubs.
//
// Many methods: each request has a form for everybody's blobs and one for the hub's keys, and both
// share what follows when it fails.
type Storage struct {
	// bucket is nil for a folder that no request has found yet.
	bucket  atomic.Pointer[blob.Bucket]
	dir     string // the folder, "" for an object store
	health  *Health
	buffers buffers
	gate    Gate // nil for none
}

// copyBuffer is how much a write to a folder reads at once.
const copyBuffer = 64 << 10

// buffers are those of writes that have ended.
type buffers struct {
	free sync.Pool // of *[copyBuffer]byte
}

// Health is the storage's state.
func (s *Storage) Health() *Health { return s.health }

// What a write to an object store may hold in memory: it goes in parts, and a part is sent again if
// it fails. S3 allows 10000 parts, so the largest file is 80 GB.
const (
	partSize    = 8 << 20 // bytes
	partsAtOnce = 2
	// takeBackWithin is how long a write that was given up may take to clean up.
	takeBackWithin = 10 * time.Second
)

// Remote reports whether the storage is an object store, which may be away for a while, rather than
// a folder.
func (s *Storage) Remote() bool { return s.dir == "" }

// Dir returns the folder of the storage, "" for an object store.
func (s *Storage) Dir() string { return s.dir }

// Close releases the storage; open readers stay valid. A folder has nothing to release, and closing
// its bucket would wait for requests that hang in the file system.
func (s *Storage) Close() error {
	if s.dir != "" {
		return nil
	}
	return s.bucket.Load().Close()
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
	return s.write(ctx, key, r, writeOptions{})
}

// Create is Write for a key that has no blob yet; created is false if there is one, which stays as
// it is.
func (s *Storage) Create(ctx context.Context, key string, r io.Reader) (created bool, err error) {
	if isSecret(key) {
		return false, errSecret
	}
	_, err = s.write(ctx, key, r, writeOptions{once: true})
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return false, nil
	}
	return err == nil, err
}

// writeOptions say how a blob is written.
type writeOptions struct {
	once    bool // only if there is none
	private bool // in a folder, readable by the hub's user only
}

func (s *Storage) write(ctx context.Context, key string, r io.Reader, how writeOptions) (int64, error) {
	n, err := s.put(ctx, key, r, how)
	if errors.Is(err, ErrStorage) && gcerrors.Code(err) != gcerrors.FailedPrecondition && ctx.Err() == nil {
		s.health.doubtful(n)
	}
	return n, err
}

func (s *Storage) put(ctx context.Context, key string, r io.Reader, how writeOptions) (int64, error) {
	from := &sourceReader{ctx: ctx, r: r}
	o := &blob.WriterOptions{
		ContentType:                 octetStream,
		DisableContentTypeDetection: true,
		IfNotExist:                  how.once,
	}
	write := s.writeObject
	if s.dir != "" {
		write = func(ctx context.Context, key string, from io.Reader, o *blob.WriterOptions) error {
			return s.writeFile(ctx, key, from, o, how.private)
		}
	}
	err := write(ctx, key, from, o)
	switch {
	case from.err != nil:
		return from.n, from.err
	case err != nil:
		return from.n, fmt.Errorf("%w: write: %w", ErrStorage, err)
	}
	return from.n, nil
}

// writeObject writes a blob of an object store. If its source fails, the driver removes the parts
// that are already there, and needs a context for that which has not ended; otherwise they would be
// paid for and never seen.
func (s *Storage) writeObject(ctx context.Context, key string, from io.Reader, o *blob.WriterOptions) error {
	o.BufferSize, o.MaxConcurrency = partSize, partsAtOnce
	upload, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(takeBackWithin, abort) })()
	bucket, err := s.blobs(ctx, StepWrite)
	if err != nil {
		return err
	}
	return bucket.Upload(upload, key, from, o)
}

// writeFile writes a blob of a folder. Ending the context before Close is how a write is given up;
// a truncated blob must never appear.
func (s *Storage) writeFile(ctx context.Context, key string, from io.Reader, o *blob.WriterOptions, private bool) error {
	if s.health.isMarked() {
		// Anything written into the folder below a mount is lost once the mount is back.
		if err := s.health.checkMark(ctx); err != nil {
			return err
		}
	}
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	var file *os.File
	o.BeforeWrite = func(as func(any) bool) error {
		as(&file)
		if private && file != nil {
			// Before the first byte: the library makes it readable by everybody.
			return file.Chmod(0o600)
		}
		return nil
	}
	bucket, err := s.blobs(ctx, StepWrite)
	if err != nil {
		return err
	}
	w, err := bucket.NewWriter(ctx, key, o)
	if err != nil {
		return err
	}
	_, err = s.buffers.copy(s.writer(ctx, w), from)
	if err == nil && file != nil {
		// Without it a power cut could leave a named file with the right length and the wrong
		// bytes.
		err = file.Sync()
	}
	if err == nil {
		err = s.pass(ctx, StepName, 0)
	}
	if err != nil {
		abort()
	}
	if err = errors.Join(err, w.Close()); err != nil || file == nil {
		return err
	}
	return s.keepName(ctx, filepath.Dir(file.Name()))
}

// copy is io.Copy with a reused buffer. The library's writer would make one of 1 MiB for each file,
// however small, and the garbage collector would pay for it.
func (b *buffers) copy(w io.Writer, from io.Reader) (int64, error) {
	buffer, _ := b.free.Get().(*[copyBuffer]byte)
	if buffer == nil {
		buffer = new([copyBuffer]byte)
	}
	defer b.free.Put(buffer)
	return io.CopyBuffer(struct{ io.Writer }{w}, from, buffer[:])
}

// sourceReader remembers whether it was the reading side that failed: an instance that breaks off
// is not the storage's fault.
type sourceReader struct {
	ctx context.Context // nil for none; its end is a failure of the source
	r   io.Reader
	n   int64 // bytes read
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	if s.ctx != nil && s.ctx.Err() != nil {
		s.err = s.ctx.Err()
		return 0, s.err
	}
	n, err := s.r.Read(p)
	s.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// Open reads length bytes of a blob from offset on, or everything after it if length is negative. A
// missing blob is ErrGone.
func (s *Storage) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if isSecret(key) {
		return nil, errSecret
	}
	return s.open(ctx, key, offset, length)
}

// OpenSized is Open for a blob that had a size when it was written. One that has another is ErrGone:
// a storage that lost power may have lost the end of what it said it had synced.
func (s *Storage) OpenSized(ctx context.Context, key string, size, offset, length int64) (io.ReadCloser, error) {
	if isSecret(key) {
		return nil, errSecret
	}
	r, err := s.open(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	if sized, ok := r.(interface{ Size() int64 }); ok && size >= 0 && sized.Size() != size {
		_ = r.Close()
		return nil, fmt.Errorf("%w: it has %d of %d bytes", ErrGone, sized.Size(), size)
	}
	return r, nil
}

func (s *Storage) open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	bucket, err := s.blobs(ctx, StepRead)
	if err != nil {
		return nil, s.failed(ctx, "read", key, err)
	}
	r, err := bucket.NewRangeReader(ctx, key, offset, length, nil)
	if err == nil {
		return s.reader(ctx, r), nil
	}
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, s.failed(ctx, "read", key, err)
	}
	// Object stores refuse to read nothing: past the end, or in an empty blob.
	if b, statErr := s.stat(ctx, key); statErr == nil && offset >= b.Size {
		return http.NoBody, nil
	}
	return nil, s.failed(ctx, "read", key, err)
}

// Stat describes a blob; a missing one is ErrGone.
func (s *Storage) Stat(ctx context.Context, key string) (Blob, error) {
	if isSecret(key) {
		return Blob{}, errSecret
	}
	return s.stat(ctx, key)
}

func (s *Storage) stat(ctx context.Context, key string) (Blob, error) {
	bucket, err := s.blobs(ctx, StepRead)
	if err != nil {
		return Blob{}, s.failed(ctx, "stat", key, err)
	}
	a, err := bucket.Attributes(ctx, key)
	if err != nil {
		return Blob{}, s.failed(ctx, "stat", key, err)
	}
	return Blob{Key: key, Size: a.Size, Modified: a.ModTime}, nil
}

// Delete removes a blob; it is not an error if there is none.
func (s *Storage) Delete(ctx context.Context, key string) error {
	if isSecret(key) {
		return errSecret
	}
	return s.remove(ctx, key)
}

func (s *Storage) remove(ctx context.Context, key string) error {
	bucket, err := s.blobs(ctx, StepDelete)
	if err == nil {
		err = bucket.Delete(ctx, key)
	}
	if err == nil || gcerrors.Code(err) == gcerrors.NotFound {
		return nil
	}
	return s.failed(ctx, "delete", key, err)
}

// List calls each for every blob whose key begins with prefix, in the order of the keys, until each
// returns an error.
func (s *Storage) List(ctx context.Context, prefix string, each func(Blob) error) error {
	return s.list(ctx, prefix, func(b Blob) error {
		if isSecret(b.Key) {
			return nil
		}
		return each(b)
	})
}

func (s *Storage) list(ctx context.Context, prefix string, each func(Blob) error) error {
	l := listing{storage: s, prefix: prefix, each: each}
	return l.all(ctx)
}

// failed returns the error for a request that the storage did not fulfil: ErrGone if the blob is
// not there, else ErrStorage.
func (s *Storage) failed(ctx context.Context, doing, key string, err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		if err = s.missing(ctx, key, err); errors.Is(err, ErrGone) {
			return err
		}
	}
	if ctx.Err() == nil {
		s.health.doubtful(0)
	}
	return fmt.Errorf("%w: %s: %w", ErrStorage, doing, err)
}

// missing returns the error for a request for a blob that the storage did not find: ErrGone, or why
// that is not certain. Otherwise a storage that was away for the request and is back when its mark
// is checked would end the jobs that need the blob. So the blob is looked for once more, between
// two checks of the mark.
func (s *Storage) missing(ctx context.Context, key string, err error) error {
	gone := fmt.Errorf("%w: %w", ErrGone, err)
	if !s.health.isMarked() {
		return gone
	}
	if err := s.health.checkMark(ctx); err != nil {
		return err
	}
	bucket, err := s.blobs(ctx, StepRead)
	if err != nil {
		return err
	}
	there, err := bucket.Exists(ctx, key)
	switch {
	case err != nil:
		return err
	case there:
		return errWasAway
	}
	if err := s.health.checkMark(ctx); err != nil {
		return err
	}
	return gone
}

// errWasAway says that a blob is there that was not found a moment ago.
var errWasAway = errors.New("it was away for a moment")
