// Package webp writes lossy WebP pictures, with an alpha channel where they are
// not opaque. It is made for previews: one key frame of VP8 (RFC 6386), each
// macroblock predicted as a whole, with the probabilities that suit the picture
// best. It is all Go, because the hub is one program without C libraries, and
// nothing that reads foreign bytes: decoding is golang.org/x/image's trade.
package webp

import (
	"encoding/binary"
	"errors"
	"image"
	"io"
)

// MaxSize is the largest width and height, in pixels.
const MaxSize = 16383

// ErrSize says that a picture is empty or too large for the format.
var ErrSize = errors.New("webp: size of the picture")

// Encode writes a picture with a quality from 0 to 100, in libwebp's measure.
// It takes about 8 bytes of memory a pixel.
func Encode(w io.Writer, img *image.NRGBA, quality int) error {
	width, height := img.Rect.Dx(), img.Rect.Dy()
	if width < 1 || height < 1 || width > MaxSize || height > MaxSize {
		return ErrSize
	}
	f := newFrame(width, height, quality)
	f.fill(img)
	f.code()
	var out []byte
	if !img.Opaque() {
		const hasAlpha = 1 << 4
		header := make([]byte, 10)
		header[0] = hasAlpha
		put24(header[4:], width-1)
		put24(header[7:], height-1)
		out = chunk(out, "VP8X", header)
		const compressed = 1
		out = chunk(out, "ALPH", append([]byte{compressed}, compressAlpha(alphaOf(img))...))
	}
	_, err := w.Write(riff(chunk(out, "VP8 ", f.bytes())))
	return err
}

// riff is the container of chunks.
func riff(chunks []byte) []byte {
	out := append(make([]byte, 0, 12+len(chunks)), "RIFF"...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len("WEBP")+len(chunks)))
	return append(append(out, "WEBP"...), chunks...)
}

// chunk adds a chunk of the RIFF container, at an even length.
func chunk(out []byte, name string, data []byte) []byte {
	out = append(out, name...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(data)))
	out = append(out, data...)
	if len(data)%2 == 1 {
		out = append(out, 0)
	}
	return out
}

func put24(b []byte, v int) { b[0], b[1], b[2] = byte(v), byte(v>>8), byte(v>>16) }

func alphaOf(img *image.NRGBA) []uint8 {
	width, height := img.Rect.Dx(), img.Rect.Dy()
	alpha := make([]uint8, 0, width*height)
	for y := range height {
		row := img.Pix[y*img.Stride:][:4*width]
		for n := 3; n < len(row); n += 4 {
			alpha = append(alpha, row[n])
		}
	}
	return alpha
}

// fill takes over the picture's pixels as ITU-R BT.601 in studio range, which
// is what decoders expect, and repeats the last ones up to whole macroblocks.
func (f *frame) fill(img *image.NRGBA) {
	at := func(x, y int) []uint8 {
		return img.Pix[min(y, f.height-1)*img.Stride+4*min(x, f.width-1):][:3]
	}
	for y := range f.y.height {
		for x := range f.y.width {
			p := at(x, y)
			r, g, b := int32(p[0]), int32(p[1]), int32(p[2])
			f.y.pix[y*f.y.width+x] = clip((16839*r + 33059*g + 6420*b + 16<<16 + 1<<15) >> 16)
		}
	}
	for y := range f.u.height {
		for x := range f.u.width {
			var r, g, b int32
			for n := range 4 {
				p := at(2*x+n%2, 2*y+n/2)
				r, g, b = r+int32(p[0]), g+int32(p[1]), b+int32(p[2])
			}
			const half = 128<<18 + 1<<17
			f.u.pix[y*f.u.width+x] = clip((-9719*r - 19081*g + 28800*b + half) >> 18)
			f.v.pix[y*f.u.width+x] = clip((28800*r - 24116*g - 4684*b + half) >> 18)
		}
	}
}
