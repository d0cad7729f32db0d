package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/gcerrors"

	"github.com/comfyhub/comfyhub/internal/durable"
)

// backend is a folder or an object store as it is: it knows no secrets, and notes what makes its
// health doubtful.
type backend struct {
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

// What a write to an object store may hold in memory: it goes in parts, and a part is sent again if
// it fails. S3 allows 10000 parts, so the largest file is 80 GB.
const (
	partSize    = 8 << 20 // bytes
	partsAtOnce = 2
	// takeBackWithin is how long a write that was given up may take to clean up.
	takeBackWithin = 10 * time.Second
)

// blobs returns the bucket, for a request that begins with a step.
func (b *backend) blobs(ctx context.Context, step Step) (*blob.Bucket, error) {
	if err := b.gate.pass(ctx, step, 0); err != nil {
		return nil, err
	}
	if bucket := b.bucket.Load(); bucket != nil {
		return bucket, nil
	}
	bucket, err := fileblob.OpenBucket(b.dir, &fileblob.Options{
		// A folder that has a mark is not new; if it is missing, it is not mounted.
		CreateDir: !b.health.isMarked(),
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
	b.bucket.Store(bucket)
	return bucket, nil
}

// writeOptions say how a blob is written.
type writeOptions struct {
	once    bool // only if there is none
	private bool // in a folder, readable by the hub's user only
}

func (b *backend) write(ctx context.Context, key string, r io.Reader, how writeOptions) (int64, error) {
	n, err := b.put(ctx, key, r, how)
	if errors.Is(err, ErrStorage) && gcerrors.Code(err) != gcerrors.FailedPrecondition && ctx.Err() == nil {
		b.health.doubtful(n)
	}
	return n, err
}

func (b *backend) put(ctx context.Context, key string, r io.Reader, how writeOptions) (int64, error) {
	from := &sourceReader{ctx: ctx, r: r}
	o := &blob.WriterOptions{
		ContentType:                 octetStream,
		DisableContentTypeDetection: true,
		IfNotExist:                  how.once,
	}
	write := b.writeObject
	if b.dir != "" {
		write = func(ctx context.Context, key string, from io.Reader, o *blob.WriterOptions) error {
			return b.writeFile(ctx, key, from, o, how.private)
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
func (b *backend) writeObject(ctx context.Context, key string, from io.Reader, o *blob.WriterOptions) error {
	o.BufferSize, o.MaxConcurrency = partSize, partsAtOnce
	upload, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(takeBackWithin, abort) })()
	bucket, err := b.blobs(ctx, StepWrite)
	if err != nil {
		return err
	}
	return bucket.Upload(upload, key, from, o)
}

// writeFile writes a blob of a folder. Ending the context before Close is how a write is given up;
// a truncated blob must never appear.
func (b *backend) writeFile(ctx context.Context, key string, from io.Reader, o *blob.WriterOptions, private bool) error {
	if b.health.isMarked() {
		// Anything written into the folder below a mount is lost once the mount is back.
		if err := b.health.checkMark(ctx); err != nil {
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
	bucket, err := b.blobs(ctx, StepWrite)
	if err != nil {
		return err
	}
	w, err := bucket.NewWriter(ctx, key, o)
	if err != nil {
		return err
	}
	_, err = b.buffers.copy(b.gate.writer(ctx, w), from)
	if err == nil && file != nil {
		// Without it a power cut could leave a named file with the right length and the wrong
		// bytes.
		err = file.Sync()
	}
	if err == nil {
		err = b.gate.pass(ctx, StepName, 0)
	}
	if err != nil {
		abort()
	}
	if err = errors.Join(err, w.Close()); err != nil || file == nil {
		return err
	}
	return b.keepName(ctx, filepath.Dir(file.Name()))
}

// keepName makes the names in a folder last, and those of the folders above it up to the storage's
// own, each of which may be new. Without it a power cut could take back a file that is complete on
// the disk and already mentioned in a history.
func (b *backend) keepName(ctx context.Context, folder string) error {
	if err := b.gate.pass(ctx, StepKeep, 0); err != nil {
		return err
	}
	for root := filepath.Clean(b.dir); strings.HasPrefix(folder, root); folder = filepath.Dir(folder) {
		err := durable.SyncFolder(folder)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
			return nil // some systems' file systems only support this for files
		}
		if err != nil || folder == root {
			return err
		}
	}
	return nil
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

func (b *backend) open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	bucket, err := b.blobs(ctx, StepRead)
	if err != nil {
		return nil, b.failed(ctx, "read", key, err)
	}
	r, err := bucket.NewRangeReader(ctx, key, offset, length, nil)
	if err == nil {
		return b.gate.reader(ctx, r), nil
	}
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, b.failed(ctx, "read", key, err)
	}
	// Object stores refuse to read nothing: past the end, or in an empty blob.
	if there, statErr := b.stat(ctx, key); statErr == nil && offset >= there.Size {
		return http.NoBody, nil
	}
	return nil, b.failed(ctx, "read", key, err)
}

func (b *backend) stat(ctx context.Context, key string) (Blob, error) {
	bucket, err := b.blobs(ctx, StepRead)
	if err != nil {
		return Blob{}, b.failed(ctx, "stat", key, err)
	}
	a, err := bucket.Attributes(ctx, key)
	if err != nil {
		return Blob{}, b.failed(ctx, "stat", key, err)
	}
	return Blob{Key: key, Size: a.Size, Modified: a.ModTime}, nil
}

func (b *backend) remove(ctx context.Context, key string) error {
	bucket, err := b.blobs(ctx, StepDelete)
	if err == nil {
		err = bucket.Delete(ctx, key)
	}
	if err == nil || gcerrors.Code(err) == gcerrors.NotFound {
		return nil
	}
	return b.failed(ctx, "delete", key, err)
}

func (b *backend) list(ctx context.Context, prefix string, each func(Blob) error) error {
	l := listing{backend: b, prefix: prefix, each: each}
	return l.all(ctx)
}

// failed returns the error for a request that the storage did not fulfil: ErrGone if the blob is
// not there, else ErrStorage.
func (b *backend) failed(ctx context.Context, doing, key string, err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		if err = b.missing(ctx, key, err); errors.Is(err, ErrGone) {
			return err
		}
	}
	if ctx.Err() == nil {
		b.health.doubtful(0)
	}
	return fmt.Errorf("%w: %s: %w", ErrStorage, doing, err)
}

// missing returns the error for a request for a blob that the storage did not find: ErrGone, or why
// that is not certain. Otherwise a storage that was away for the request and is back when its mark
// is checked would end the jobs that need the blob. So the blob is looked for once more, between
// two checks of the mark.
func (b *backend) missing(ctx context.Context, key string, err error) error {
	gone := fmt.Errorf("%w: %w", ErrGone, err)
	if !b.health.isMarked() {
		return gone
	}
	if err := b.health.checkMark(ctx); err != nil {
		return err
	}
	bucket, err := b.blobs(ctx, StepRead)
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
	if err := b.health.checkMark(ctx); err != nil {
		return err
	}
	return gone
}

// errWasAway says that a blob is there that was not found a moment ago.
var errWasAway = errors.New("it was away for a moment")
