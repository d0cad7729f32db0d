// Package webp writes lossy WebP pictures, with an alpha channel where they are
// not opaque. It is made for previews: one key frame of VP8 (RFC 6386), each
// macroblock predicted as a whole, with the probabilities that suit the picture
// best. It only writes; golang.org/x/image reads.
//
// # Why not libwebp
//
// github.com/gen2brain/webp v0.5.5 is libwebp in WebAssembly, which needs no C compiler. A
// hub cannot use it:
//
//   - It is compiled to machine code at run time, and it panics where a program may not
//     make memory executable, as in the hub's systemd unit (MemoryDenyWriteExecute).
//   - Without the build tag nodynamic it links the program dynamically, which then loads
//     the libwebp of the machine. A module cannot set a tag for those who build Caddy
//     with it.
//   - It cannot be stopped when the client is gone, and does not say how much memory a
//     picture takes, which package picture must know before it starts.
//   - It cannot encode with quality 0, which it takes for 75.
//
// It also costs more, beside this package on two busy cores, at quality 90 with the drawing
// of the tests: the CPU time of a preview, the memory of the process at its first, and
// the same with four at a time.
//
//	              1024x1024               2048x2048
//	this package   98 ms, 17 MB,  43 MB   0.6 s,  43 MB, 110 MB
//	method 0      244 ms, 67 MB, 122 MB   1.0 s, 161 MB, 458 MB
//	method 4      1.0 s,  83 MB, 146 MB   3.6 s, 222 MB, 595 MB
//
// The first preview of a process takes 0.6 s longer, and the program is 4 MB larger.
// Its files are 7 to 16 % smaller.
package webp

import (
	"context"
	"encoding/binary"
	"errors"
	"image"
	"io"
)

// MaxSize is the largest width and height, in pixels.
const MaxSize = 16383

// ErrSize says that a picture is empty or too large for the format.
var ErrSize = errors.New("webp: size of the picture")

// Rows is a picture that is read row by row, so that one in another form needs
// no copy in this one.
type Rows interface {
	Bounds() image.Rectangle
	Opaque() bool
	// Row gives row y, counted from 0, with straight alpha in 4 bytes a pixel.
	// It may use to, which has room for it.
	Row(y int, to []uint8) []uint8
}

// Memory is an upper bound of the bytes that Encode allocates for a picture that
// is opaque; the alpha takes up to 3 more a pixel.
func Memory(width, height int) int64 {
	macroblocks := ((int64(width) + 15) / 16) * ((int64(height) + 15) / 16)
	const (
		planes = 2 * 256 * 3 / 2 // the picture, and what a decoder has of it
		other  = 3 + 3*80        // modes, and the edges of predictions
		coded  = 256 * 5 / 2     // the bits of pure noise at the best quality
	)
	// A token is at least a 32nd of what a pixel can make.
	tokens := min(int64(maxTokens)*2, macroblocks*256*16)
	return macroblocks*(planes+other+coded) + tokens + 96*int64(width) + 8*segmentSize
}

// Encode writes a picture with a quality from 0 to 100, in libwebp's measure. It
// ends early with the error of ctx.
func Encode(ctx context.Context, w io.Writer, img Rows, quality int) error {
	width, height := img.Bounds().Dx(), img.Bounds().Dy()
	if width < 1 || height < 1 || width > MaxSize || height > MaxSize {
		return ErrSize
	}
	f := newFrame(width, height, quality)
	f.fill(img)
	if err := f.code(ctx); err != nil {
		return err
	}
	var chunks []chunk
	if !img.Opaque() {
		const hasAlpha = 1 << 4
		header := make([]byte, 10)
		header[0] = hasAlpha
		put24(header[4:], width-1)
		put24(header[7:], height-1)
		const compressed = 1
		chunks = append(chunks, chunk{"VP8X", [][]byte{header}}, chunk{"ALPH", [][]byte{{compressed}, compressAlpha(alphaOf(img))}})
	}
	return writeRIFF(w, append(chunks, chunk{"VP8 ", f.bytes()}))
}

// chunk is a chunk of the RIFF container, in pieces.
type chunk struct {
	name string
	data [][]byte
}

func (c chunk) size() (size int) {
	for _, piece := range c.data {
		size += len(piece)
	}
	return size
}

// writeRIFF writes the container of chunks, each at an even length.
func writeRIFF(w io.Writer, chunks []chunk) error {
	size := len("WEBP")
	for _, c := range chunks {
		size += 8 + c.size() + c.size()%2
	}
	head := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(size))
	head = append(head, "WEBP"...)
	for _, c := range chunks {
		head = binary.LittleEndian.AppendUint32(append(head, c.name...), uint32(c.size()))
		if _, err := w.Write(head); err != nil {
			return err
		}
		for _, piece := range c.data {
			if _, err := w.Write(piece); err != nil {
				return err
			}
		}
		head = make([]byte, c.size()%2)
	}
	_, err := w.Write(head)
	return err
}

func put24(b []byte, v int) { b[0], b[1], b[2] = byte(v), byte(v>>8), byte(v>>16) }

func alphaOf(img Rows) []uint8 {
	width, height := img.Bounds().Dx(), img.Bounds().Dy()
	alpha, room := make([]uint8, 0, width*height), make([]uint8, 4*width)
	for y := range height {
		row := img.Row(y, room)
		for n := 3; n < 4*width; n += 4 {
			alpha = append(alpha, row[n])
		}
	}
	return alpha
}

// fill takes over the picture's pixels as ITU-R BT.601 in studio range, which
// is what decoders expect, and repeats the last ones up to whole macroblocks.
func (f *frame) fill(img Rows) {
	room := [2][]uint8{make([]uint8, 4*f.width), make([]uint8, 4*f.width)}
	for y := range f.u.height {
		var row [2][]uint8
		for n := range row {
			row[n] = img.Row(min(2*y+n, f.height-1), room[n])
			f.fillLuma(2*y+n, row[n])
		}
		f.fillChroma(y, row)
	}
}

func (f *frame) fillLuma(y int, row []uint8) {
	for x := range f.y.width {
		p := row[4*min(x, f.width-1):][:3]
		r, g, b := int32(p[0]), int32(p[1]), int32(p[2])
		f.y.pix[y*f.y.width+x] = clip((16839*r + 33059*g + 6420*b + 16<<16 + 1<<15) >> 16)
	}
}

func (f *frame) fillChroma(y int, row [2][]uint8) {
	for x := range f.u.width {
		var r, g, b int32
		for n := range 4 {
			p := row[n/2][4*min(2*x+n%2, f.width-1):][:3]
			r, g, b = r+int32(p[0]), g+int32(p[1]), b+int32(p[2])
		}
		const half = 128<<18 + 1<<17
		f.u.pix[y*f.u.width+x] = clip((-9719*r - 19081*g + 28800*b + half) >> 18)
		f.v.pix[y*f.u.width+x] = clip((28800*r - 24116*g - 4684*b + half) >> 18)
	}
}
