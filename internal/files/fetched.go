package files

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/comfyhub/comfyhub/internal/job"
)

// ErrNoMedia says that a file is no picture, video or sound of a known format.
var ErrNoMedia = errors.New("files: not a picture, video or sound in a known format")

// Fetched is a file that was read from elsewhere. It is on the local disk until it is closed.
type Fetched struct {
	// Ref is the input it becomes, named as in [Embedded].
	Ref job.FileRef
	// Size is in bytes.
	Size  int64
	spool *spool
}

// Fetch reads a file whose first bytes must be those of a picture, a video or a sound. The error is
// ErrTooLarge for more than limit bytes, ErrNoMedia, one of the reader's, budget.ErrFull, or one of
// the local disk, which wraps ErrStorage.
func (s *Store) Fetch(ctx context.Context, r io.Reader, limit int64) (*Fetched, error) {
	sp, err := newSpool(ctx, s.spool, r, max(limit, 1))
	if err != nil {
		return nil, err
	}
	start := make([]byte, sniffed)
	n, err := io.ReadFull(sp.reader(), start)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		sp.Close()
		return nil, fmt.Errorf("%w: spool: %w", ErrStorage, err)
	}
	ext := mediaExtension(start[:n])
	if ext == "" {
		sp.Close()
		return nil, ErrNoMedia
	}
	return &Fetched{Ref: embeddedRef(sp.sha256, ext), Size: sp.size, spool: sp}, nil
}

// Content reads the file from its start, again at each call.
func (f *Fetched) Content() io.Reader { return f.spool.reader() }

// Close deletes the file.
func (f *Fetched) Close() { f.spool.Close() }
