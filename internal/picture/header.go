// Package picture decodes and encodes the pictures of previews and masks within
// limits on memory and processor time. What a picture will cost is determined from
// its header before anything is decoded: a file of a few kilobytes can contain
// billions of bytes of pixels.
package picture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
)

// MaxPixels is the largest picture that is decoded: Pillow, and with it ComfyUI,
// refuses larger ones as decompression bombs.
const MaxPixels = 178_956_970

var (
	// ErrFormat means that a file is not a picture that can be decoded here.
	ErrFormat = errors.New("picture: not a picture that can be decoded")
	// ErrBomb means that a picture would cost more than any legitimate one.
	ErrBomb = errors.New("picture: too costly to decode")
)

// Header is what the beginning of a file says of its picture.
type Header struct {
	// Format is jpeg, png, gif, webp, bmp or tiff.
	Format        string
	Width, Height int

	// decoding is the sum in bytes of everything that decoding allocates.
	decoding int64
	// straight means that the decoded picture can be used without a copy: it has 8
	// bits per channel and straight alpha.
	straight bool
	// planar means that the JPEG encoder accepts the decoded picture as it is.
	planar bool
	// settled means that no later segment of a JPEG can change its colours.
	settled bool
	// scans is how many scans a JPEG may have, and scansAt the offset of the first.
	scans   int
	scansAt int64
	alpha   bool
	// size is that of a TIFF's file, in bytes.
	size int64
}

// Source is the file of a picture: from its beginning, and at any place.
type Source interface {
	io.Reader
	io.ReaderAt
}

// ReadHeader reads as much of a file as is needed to know what decoding it will
// cost, with little of it in memory at a time. size is that of the whole file, in bytes.
// Errors are ErrFormat, ErrBomb or those of r.
func ReadHeader(r Source, size int64) (Header, error) {
	from := &watched{r: &bounded{r, maxHeader}}
	buffered := bufio.NewReader(from)
	h, err := readHeader(buffered, r, size)
	h.scansAt = from.n - int64(buffered.Buffered()) - 2
	switch {
	case from.err != nil:
		return Header{}, from.err
	case errors.Is(err, ErrBomb):
		return Header{}, err
	case err != nil:
		return Header{}, fmt.Errorf("%w: %w", ErrFormat, err)
	case h.Width < 1 || h.Height < 1:
		return Header{}, fmt.Errorf("%w: it is empty", ErrFormat)
	}
	return h, nil
}

func readHeader(r *bufio.Reader, file io.ReaderAt, size int64) (Header, error) {
	start, err := r.Peek(16)
	if err != nil && len(start) < 4 {
		return Header{}, ErrFormat
	}
	switch s := string(start); {
	case s[:2] == "\xff\xd8":
		return jpegHeader(r)
	case len(s) >= 8 && s[:8] == "\x89PNG\r\n\x1a\n":
		return pngHeader(r)
	case s[:4] == "GIF8":
		return gifHeader(r)
	case s[:4] == "RIFF" && len(s) >= 15 && s[8:15] == "WEBPVP8":
		return webpHeader(r, size)
	case s[:2] == "BM":
		config, err := bmp.DecodeConfig(r)
		return configHeader("bmp", config, err, 1)
	case s[:4] == "II*\x00", s[:4] == "MM\x00*":
		if size > maxTIFF {
			return Header{}, fmt.Errorf("%w: a TIFF of %d bytes", ErrBomb, size)
		}
		config, err := tiff.DecodeConfig(&boundedAt{file, maxTIFFHeader})
		// The whole file is in memory, and whole strips are, in slices that grow; a
		// strip may be the whole picture.
		h, err := configHeader("tiff", config, err, 9)
		h.decoding += 6*size + 1<<20
		h.size = size
		return h, err
	}
	return Header{}, ErrFormat
}

// maxHeader bounds what is read of a file before its pixels, in bytes: the texts of a
// workflow may be there, and films as well.
const maxHeader = 8 << 20

// bounded is a file of which so much is read at most.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%w: nothing but metadata in its first part", ErrBomb)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

const (
	// maxTIFF bounds a TIFF file in bytes: it is decoded in memory.
	maxTIFF = 32 << 20
	// maxTIFFHeader bounds its header, which may be anywhere in the file: as many entries as
	// there can be, and a palette.
	maxTIFFHeader = 1 << 20
)

// boundedAt is bounded for a file that is read at several places.
type boundedAt struct {
	r    io.ReaderAt
	left int64
}

// ReadAt implements io.ReaderAt.
func (b *boundedAt) ReadAt(p []byte, off int64) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, fmt.Errorf("%w: a long header", ErrBomb)
	}
	return b.r.ReadAt(p, off)
}

// Read is not used: the decoder looks for ReadAt.
func (b *boundedAt) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// sized sets the size of a picture, or refuses it.
func (h *Header) sized(width, height int) error {
	if width > 0 && height > MaxPixels/width {
		return fmt.Errorf("%w: %d by %d pixels", ErrBomb, width, height)
	}
	h.Width, h.Height = width, height
	return nil
}

func (h *Header) pixels() int64 { return int64(h.Width) * int64(h.Height) }

// configHeader returns a header made from a decoder's own configuration; copies is
// how many copies of all pixels it has.
func configHeader(format string, c image.Config, err error, copies int64) (Header, error) {
	h := Header{Format: format}
	if err == nil {
		err = h.sized(c.Width, c.Height)
	}
	if err != nil {
		return h, err
	}
	size := int64(4)
	switch c.ColorModel {
	case color.GrayModel:
		size = 1
	case color.Gray16Model:
		size = 2
	case color.RGBAModel, color.NRGBAModel:
		h.straight = c.ColorModel == color.NRGBAModel || format == "bmp"
	case color.RGBA64Model, color.NRGBA64Model:
		size = 8
	default:
		if _, ok := c.ColorModel.(color.Palette); ok {
			size = 1
		}
	}
	h.alpha = c.ColorModel != color.GrayModel && c.ColorModel != color.Gray16Model
	h.decoding = copies*size*h.pixels() + 8*int64(c.Width) + overhead
	return h, nil
}

// overhead is the memory of every decoder besides pixels: tables, and the windows
// and buffers of decompression.
const overhead = 128 << 10

func pngHeader(r *bufio.Reader) (Header, error) {
	h := Header{Format: "png"}
	var b [8 + 8 + 13 + 4]byte
	if _, err := io.ReadFull(r, b[:]); err != nil || string(b[12:16]) != "IHDR" {
		return h, ErrFormat
	}
	width, height := binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint32(b[20:])
	if width > MaxPixels || height > MaxPixels {
		return h, fmt.Errorf("%w: %d by %d pixels", ErrBomb, width, height)
	}
	if err := h.sized(int(width), int(height)); err != nil {
		return h, err
	}
	depth, kind, interlaced := b[24], b[25], b[28] == 1
	transparent, err := pngTransparent(r)
	if err != nil {
		return h, err
	}
	size := int64(1)
	switch kind {
	case 0: // gray
		if transparent {
			size = 4
		}
	case 2, 4, 6: // RGB, gray with alpha, RGB with alpha
		size = 4
	}
	if depth == 16 {
		size *= 2
	}
	h.straight = size == 4
	h.alpha = kind >= 3 || transparent
	h.decoding = size*h.pixels() + 2*8*int64(h.Width) + overhead
	if interlaced { // the passes are pictures of their own
		h.decoding += size*(h.pixels()+2*int64(h.Width+h.Height)) + 7*8*int64(h.Width)
	}
	return h, nil
}

// pngTransparent reports whether a colour is transparent, which changes the type of
// the decoded picture.
func pngTransparent(r *bufio.Reader) (bool, error) {
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return false, ErrFormat
		}
		switch string(head[4:]) {
		case "tRNS":
			return true, nil
		case "IDAT", "IEND":
			return false, nil
		}
		if _, err := io.CopyN(io.Discard, r, int64(binary.BigEndian.Uint32(head[:]))+4); err != nil {
			return false, ErrFormat
		}
	}
}

// gifHeader assumes that the first frame, the only one that is decoded of an
// animation, fills the canvas.
func gifHeader(r *bufio.Reader) (Header, error) {
	h := Header{Format: "gif", alpha: true}
	var b [10]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return h, ErrFormat
	}
	if err := h.sized(int(binary.LittleEndian.Uint16(b[6:])), int(binary.LittleEndian.Uint16(b[8:]))); err != nil {
		return h, err
	}
	h.decoding = 2*h.pixels() + overhead // twice if it is interlaced
	return h, nil
}
