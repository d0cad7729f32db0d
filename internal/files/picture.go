package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"os"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/picture"
)

// pictureSource is the file of a picture, which is read twice: its header, to get room for it, and
// then all of it.
type pictureSource struct {
	size int64 // bytes
	// open reads length bytes from offset on, or everything after it if length is negative.
	open func(offset, length int64) (io.ReadCloser, error)
	done func()
}

func (s *pictureSource) Close() {
	if s.done != nil {
		s.done()
	}
}

// source returns a file's bytes. One that is only on an instance is fetched once, to the local
// disk, when it is the caller's turn.
func (v *View) source(ctx context.Context, caller string, e Entry) (*pictureSource, error) {
	if e.Stored() {
		return &pictureSource{size: e.Size, open: func(offset, length int64) (io.ReadCloser, error) {
			return v.store.Open(ctx, e, offset, length)
		}}, nil
	}
	release, err := v.gate.AcquireAsked(ctx, caller)
	if err != nil {
		return nil, err
	}
	defer release()
	resp, err := v.fetch(ctx, *e.Source, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInstance, err)
	}
	defer resp.Body.Close()
	if err := checkFetched(resp, *e.Source); err != nil {
		return nil, err
	}
	sp, err := newSpool(ctx, v.store.spool, resp.Body, maxPictureFile)
	if errors.Is(err, ErrTooLarge) {
		err = picture.ErrBomb
	}
	if err != nil {
		return nil, err
	}
	return spooledPicture(sp), nil
}

// spooledPicture is a picture on the local disk; closing it closes the spool.
func spooledPicture(sp *spool) *pictureSource {
	return &pictureSource{
		size: sp.size, open: sp.open, done: sp.Close,
	}
}

// header reads the header when it is the caller's turn.
func (s *pictureSource) header(ctx context.Context, gate *picture.Gate, caller string) (picture.Header, error) {
	if s.size > maxPictureFile {
		return picture.Header{}, picture.ErrBomb
	}
	release, err := gate.AcquireHeader(ctx, caller)
	if err != nil {
		return picture.Header{}, err
	}
	defer release()
	body, err := s.open(0, -1)
	if err != nil {
		return picture.Header{}, err
	}
	defer body.Close()
	from := &headerReader{sourceReader: sourceReader{r: body}, open: s.open}
	h, err := picture.ReadHeader(from, s.size)
	if from.err != nil {
		err = from.err
	}
	return h, err
}

func (s *pictureSource) decode(ctx context.Context, h picture.Header) (image.Image, error) {
	body, err := s.open(0, -1)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return picture.Decode(ctx, body, h)
}

// sketchMemory is the most memory a sketch takes, in bytes.
const sketchMemory = 64 << 10

// sketch is a picture that was made and is to be sent: in memory while it is small, else on the
// local disk.
type sketch struct {
	counted

	dir    string
	size   int64
	head   bytes.Buffer
	memory int64 // what was taken for head
	file   *os.File
}

// sketch returns an empty one, which counts toward the request of ctx.
func (v *View) sketch(ctx context.Context) *sketch {
	return &sketch{counted: counted{ctx: ctx, held: budget.From(ctx)}, dir: v.store.spool}
}

func (s *sketch) Write(p []byte) (int, error) {
	if s.file == nil && s.fits(len(p)) {
		s.size += int64(len(p))
		return s.head.Write(p)
	}
	if s.file == nil {
		file, err := os.CreateTemp(s.dir, "comfyhub-picture-*")
		if err != nil {
			return 0, fmt.Errorf("%w: spool: %w", ErrStorage, err)
		}
		s.file = file
		_ = os.Remove(file.Name()) // a killed hub leaves nothing behind
	}
	if _, err := s.counted.Write(p); err != nil {
		return 0, err
	}
	n, err := s.file.Write(p)
	s.size += int64(n)
	if err != nil {
		err = fmt.Errorf("%w: spool: %w", ErrStorage, err)
	}
	return n, err
}

// fits reports whether n more bytes may be kept in memory. They may stay there for as long as
// whoever asked for the picture does not read.
func (s *sketch) fits(n int) bool {
	const most = sketchMemory / 2 // the buffer doubles when it grows
	if s.head.Len()+n > most || !s.held.TakeSpare(budget.Memory, int64(2*n)) {
		return false
	}
	s.memory += int64(2 * n)
	return true
}

func (s *sketch) reader() io.Reader {
	if s.file == nil {
		return bytes.NewReader(s.head.Bytes())
	}
	head := int64(s.head.Len())
	return io.MultiReader(bytes.NewReader(s.head.Bytes()), io.NewSectionReader(s.file, 0, s.size-head))
}

func (s *sketch) Close() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
	s.held.Give(budget.Memory, s.memory)
	s.memory = 0
	s.giveBack()
}
