package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/comfyhub/comfyhub/internal/budget"
)

// spool is an upload on the local disk, complete and hashed. Names and keys depend on the content,
// so nothing can be stored before its last byte is here.
type spool struct {
	file   *os.File
	size   int64
	sha256 string
	counted
}

// counted counts what is written to the local disk, before it is written.
type counted struct {
	ctx   context.Context //nolint:containedctx // that of the writing
	held  *budget.Holder
	taken int64
}

func (c *counted) Write(p []byte) (int, error) {
	if !c.held.Await(c.ctx, budget.Disk, int64(len(p))) {
		return 0, budget.ErrFull
	}
	c.taken += int64(len(p))
	return len(p), nil
}

func (c *counted) giveBack() {
	c.held.Give(budget.Disk, c.taken)
	c.taken = 0
}

// newSpool reads all of r; more than limit bytes are ErrTooLarge, a limit of 0 means no limit.
func newSpool(ctx context.Context, dir string, r io.Reader, limit int64) (*spool, error) {
	return fillSpool(ctx, dir, func(w io.Writer) (int64, error) {
		if limit <= 0 {
			return io.Copy(w, r)
		}
		n, err := io.Copy(w, io.LimitReader(r, limit+1))
		if err == nil && n > limit {
			err = ErrTooLarge
		}
		return n, err
	})
}

// spoolFile is the file of a spool. A disk that fails must not look like a source that does.
type spoolFile struct{ *os.File }

func (f spoolFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	if err != nil {
		err = fmt.Errorf("%w: spool: %w", ErrStorage, err)
	}
	return n, err
}

// fillSpool makes a spool of what fill writes. It counts toward the request of ctx: the error is
// budget.ErrFull if there is no room. It wraps ErrStorage if the local disk fails.
func fillSpool(ctx context.Context, dir string, fill func(io.Writer) (int64, error)) (*spool, error) {
	file, err := os.CreateTemp(dir, "comfyhub-upload-*")
	if err != nil {
		return nil, fmt.Errorf("%w: spool: %w", ErrStorage, err)
	}
	s := &spool{file: file, counted: counted{ctx: ctx, held: budget.From(ctx)}}
	// Unlinked at once if the system allows it, so that a killed hub leaves nothing behind; if not,
	// Close tries again.
	_ = os.Remove(file.Name())
	hash := sha256.New()
	if s.size, err = fill(io.MultiWriter(hash, &s.counted, spoolFile{file})); err != nil {
		s.Close()
		return nil, err
	}
	s.sha256 = hex.EncodeToString(hash.Sum(nil))
	return s, nil
}

// reader reads the whole upload, again at each call.
func (s *spool) reader() io.Reader { return io.NewSectionReader(s.file, 0, s.size) }

// open reads a part of it: length bytes from offset on, or everything after it if length is
// negative.
func (s *spool) open(offset, length int64) (io.ReadCloser, error) {
	offset = min(offset, s.size)
	if rest := s.size - offset; length < 0 || length > rest {
		length = rest
	}
	return io.NopCloser(io.NewSectionReader(s.file, offset, length)), nil
}

func (s *spool) Close() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
	s.giveBack()
}
