package picture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"golang.org/x/image/webp"
)

// Decode decodes a picture whose header is known. It ends early if ctx does. Errors
// are ErrFormat, ErrBomb, that of ctx or those of r.
func Decode(ctx context.Context, r io.Reader, h Header) (image.Image, error) {
	from := &watched{ctx: ctx, r: r}
	if h.Format == "jpeg" {
		from.scans, from.scansAt, from.settled = h.scans, h.scansAt, h.settled
	}
	img, err := decode(from, h)
	switch {
	case from.err != nil:
		return nil, from.err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if size := img.Bounds().Size(); size.X > h.Width || size.Y > h.Height {
		return nil, fmt.Errorf("%w: it is larger than its header says", ErrBomb)
	}
	return img, nil
}

func decode(r io.Reader, h Header) (image.Image, error) {
	if h.Format == "tiff" {
		file, err := wholeTIFF(r, h.size)
		if err != nil {
			return nil, err
		}
		return tiff.Decode(file)
	}
	return decoders[h.Format](r)
}

// wholeTIFF reads a TIFF into memory. Given a stream, the decoder would do that by
// itself, but in steps of 10 MB, as far as the file claims to go: 400 bytes could
// make it allocate that much. size is that of the file, in bytes.
func wholeTIFF(r io.Reader, size int64) (*bytes.Reader, error) {
	data := make([]byte, size)
	n, err := io.ReadFull(r, data)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	return bytes.NewReader(data[:n]), nil
}

var decoders = map[string]func(io.Reader) (image.Image, error){
	"jpeg": jpeg.Decode, "png": png.Decode, "gif": gif.Decode, "webp": webp.Decode, "bmp": bmp.Decode,
}

// maxScans bounds the scans of a progressive JPEG. Encoders write about 10, and
// each covers the whole picture, however few bytes it has: 60,000 would take hours.
func maxScans(pixels int64) int {
	const (
		least, most = 24, 100
		work        = 1_000_000_000 // pixels of all scans
	)
	return int(min(max(work/max(pixels, 1), least), most))
}

// watched is the source of a decoder. It stops when nobody waits for the picture
// any more, and when a JPEG turns out to cost more than expected.
type watched struct {
	ctx   context.Context
	r     io.Reader
	n     int64 // bytes read
	err   error // not io.EOF
	scans int   // of a JPEG that may still come; 0 for other formats
	// scansAt and settled are as in Header.
	scansAt int64
	settled bool
	last    byte
}

func (w *watched) Read(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.ctx != nil && w.ctx.Err() != nil {
		w.err = w.ctx.Err()
		return 0, w.err
	}
	n, err := w.r.Read(p)
	before := max(min(w.scansAt-w.n, int64(n)), 0)
	w.n += int64(n)
	if w.scans > 0 && !w.check(p[before:n]) {
		err = fmt.Errorf("%w: too many scans, or segments out of place", ErrBomb)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // readers give it bare
		w.err = err
	}
	return n, err
}

// check looks for the bytes that begin a scan, and for a later segment that makes
// the picture RGB: the cost from its header does not include the copy that this
// needs. Compressed data cannot contain these bytes.
func (w *watched) check(p []byte) bool {
	for _, b := range p {
		if w.last == 0xff {
			switch {
			case b == markerSOS:
				if w.scans--; w.scans == 0 {
					return false
				}
			case b == markerAPP14 && !w.settled:
				return false
			}
		}
		w.last = b
	}
	return true
}
