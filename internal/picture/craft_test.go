package picture

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color/palette"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"github.com/comfyhub/comfyhub/internal/webp"
)

// craftedJPEG is a JPEG of zeros, which needs few bytes for many pixels. Go's
// encoder writes neither progressive pictures nor CMYK.
type craftedJPEG struct {
	width, height int
	sampling      []byte // of each component, such as 0x22
	progressive   bool
	scans         int    // more ones after the first round
	before        []byte // segments before the frame's
	after         []byte // and behind it
}

var jfifSegment = segment(0xe0, "JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00")

func adobeSegment(transform byte) []byte {
	return segment(0xee, "Adobe\x00\x64\x00\x00\x00\x00"+string(transform))
}

func segment(marker byte, data string) []byte {
	return append([]byte{0xff, marker, byte((len(data) + 2) >> 8), byte(len(data) + 2)}, data...)
}

func (c craftedJPEG) bytes() []byte {
	out := append([]byte{0xff, 0xd8}, c.before...)
	quant := append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)
	out = append(out, segment(0xdb, string(quant))...)
	sof := byte(0xc0)
	if c.progressive {
		sof = 0xc2
	}
	frame := []byte{8, byte(c.height >> 8), byte(c.height), byte(c.width >> 8), byte(c.width), byte(len(c.sampling))}
	for n, hv := range c.sampling {
		frame = append(frame, byte(n+1), hv, 0)
	}
	out = append(out, segment(sof, string(frame))...)
	out = append(out, c.after...)
	// One code of one bit each: no difference for DC, and for AC the end of the
	// block, or of 16384 blocks.
	end := byte(0)
	if c.progressive {
		end = 0xe0
	}
	out = append(out, segment(0xc4, "\x00\x01"+string(make([]byte, 15))+"\x00")...)
	out = append(out, segment(0xc4, "\x10\x01"+string(make([]byte, 15))+string([]byte{end}))...)
	blocks := 0
	across, down := int(c.sampling[0]>>4), int(c.sampling[0]&15)
	units := ((c.width + 8*across - 1) / (8 * across)) * ((c.height + 8*down - 1) / (8 * down))
	head := []byte{byte(len(c.sampling))}
	for n, hv := range c.sampling {
		blocks += units * int(hv>>4) * int(hv&15)
		head = append(head, byte(n+1), 0)
	}
	if !c.progressive {
		out = append(out, segment(0xda, string(append(head, 0, 63, 0)))...)
		return append(append(out, make([]byte, blocks/4+16)...), 0xff, 0xd9)
	}
	out = append(out, segment(0xda, string(append(head, 0, 0, 0)))...)
	out = append(out, make([]byte, blocks/8+16)...)
	for n := range len(c.sampling) + c.scans {
		out = append(out, segment(0xda, string([]byte{1, byte(n%len(c.sampling) + 1), 0, 1, 63, 0}))...)
		out = append(out, make([]byte, units*16/16384*2+16)...)
	}
	return append(out, 0xff, 0xd9)
}

// craftPNG is a PNG of zeros, of any kind that there is.
func craftPNG(width, height int, depth, kind byte, interlaced bool, chunks ...[]byte) []byte {
	channels := map[byte]int{0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
	row := func(w int) int { return 1 + (w*channels*int(depth)+7)/8 }
	size := height * row(width)
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(width)), uint32(height))
	header = append(header, depth, kind, 0, 0, 0)
	if interlaced {
		header[12] = 1
		size = 0
		for _, p := range [][4]int{{8, 8, 0, 0}, {8, 8, 4, 0}, {4, 8, 0, 4}, {4, 4, 2, 0}, {2, 4, 0, 2}, {2, 2, 1, 0}, {1, 2, 0, 1}} {
			w, h := (width-p[2]+p[0]-1)/p[0], (height-p[3]+p[1]-1)/p[1]
			if w > 0 && h > 0 {
				size += h * row(w)
			}
		}
	}
	var data bytes.Buffer
	z := zlib.NewWriter(&data)
	zeros := make([]byte, 1<<16)
	for size > 0 {
		n, _ := z.Write(zeros[:min(size, len(zeros))])
		size -= n
	}
	_ = z.Close()
	out := append([]byte("\x89PNG\r\n\x1a\n"), pngChunk("IHDR", header)...)
	if kind == 3 {
		out = append(out, pngChunk("PLTE", make([]byte, 3*(1<<min(depth, 8))))...)
	}
	for _, c := range chunks {
		out = append(out, c...)
	}
	return append(append(out, pngChunk("IDAT", data.Bytes())...), pngChunk("IEND", nil)...)
}

func pngChunk(name string, data []byte) []byte {
	out := append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), name...)
	out = append(out, data...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:]))
}

// craftVP8L is a lossless WebP of one colour, which takes no bit a pixel, with
// a palette if asked.
func craftVP8L(width, height int, withPalette bool) []byte {
	var out []byte
	acc, have := uint64(0), 0
	put := func(v uint64, n int) {
		acc |= v << have
		for have += n; have >= 8; have -= 8 {
			out = append(out, byte(acc))
			acc >>= 8
		}
	}
	codes := func() {
		for range 5 {
			put(1, 1) // a simple code
			put(0, 1) // of one symbol
			put(0, 1) // of one bit
			put(0, 1) // which is 0
		}
	}
	put(0x2f, 8)
	put(uint64(width-1), 14)
	put(uint64(height-1), 14)
	put(0, 4)
	if withPalette {
		put(1, 1)
		put(3, 2)
		put(255, 8) // 256 colours: a byte a pixel
		put(0, 1)
		codes()
	}
	put(0, 1)
	put(0, 1) // no color cache
	put(0, 1) // no meta codes
	codes()
	put(0, 32)
	return riff("VP8L", out)
}

func riff(name string, data []byte, before ...byte) []byte {
	data = append(data, make([]byte, len(data)%2)...)
	chunk := append(binary.LittleEndian.AppendUint32([]byte(name), uint32(len(data))), data...)
	chunk = append(before, chunk...)
	return append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(len(chunk)+4)), append([]byte("WEBP"), chunk...)...)
}

func noise(img *image.NRGBA) *image.NRGBA {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range img.Pix {
		img.Pix[n] = uint8(r.Uint32())
	}
	return img
}

// madeOf encodes with one of the encoders.
func madeOf(t testing.TB, img image.Image, encode func(io.Writer, image.Image) error) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, encode(&out, img))
	return out.Bytes()
}

// kinds are pictures of every kind that is decoded.
func kinds(t testing.TB, width, height int) map[string][]byte {
	t.Helper()
	r := image.Rect(0, 0, width, height)
	alpha := noise(image.NewNRGBA(r))
	opaque := noise(image.NewNRGBA(r))
	dropAlpha(opaque)
	all := map[string][]byte{
		"jpeg baseline 420":     craftedJPEG{width: width, height: height, sampling: []byte{0x22, 0x11, 0x11}, before: jfifSegment}.bytes(),
		"jpeg baseline 444":     craftedJPEG{width: width, height: height, sampling: []byte{0x11, 0x11, 0x11}, before: jfifSegment}.bytes(),
		"jpeg baseline gray":    craftedJPEG{width: width, height: height, sampling: []byte{0x22}, before: jfifSegment}.bytes(),
		"jpeg baseline 410":     craftedJPEG{width: width, height: height, sampling: []byte{0x42, 0x11, 0x11}, before: jfifSegment}.bytes(),
		"jpeg baseline RGB":     craftedJPEG{width: width, height: height, sampling: []byte{0x11, 0x11, 0x11}, before: adobeSegment(0)}.bytes(),
		"jpeg late RGB":         craftedJPEG{width: width, height: height, sampling: []byte{0x22, 0x11, 0x11}, after: adobeSegment(0)}.bytes(),
		"jpeg baseline CMYK":    craftedJPEG{width: width, height: height, sampling: []byte{0x11, 0x11, 0x11, 0x11}, before: adobeSegment(0)}.bytes(),
		"jpeg baseline YCCK":    craftedJPEG{width: width, height: height, sampling: []byte{0x22, 0x11, 0x11, 0x22}, before: adobeSegment(2)}.bytes(),
		"jpeg progressive 420":  craftedJPEG{width: width, height: height, sampling: []byte{0x22, 0x11, 0x11}, progressive: true, before: jfifSegment}.bytes(),
		"jpeg progressive 444":  craftedJPEG{width: width, height: height, sampling: []byte{0x11, 0x11, 0x11}, progressive: true, before: jfifSegment}.bytes(),
		"jpeg progressive gray": craftedJPEG{width: width, height: height, sampling: []byte{0x11}, progressive: true, before: jfifSegment}.bytes(),
		"jpeg progressive CMYK": craftedJPEG{width: width, height: height, sampling: []byte{0x11, 0x11, 0x11, 0x11}, progressive: true, before: adobeSegment(0)}.bytes(),
		"jpeg of Go":            madeOf(t, opaque, func(w io.Writer, i image.Image) error { return jpeg.Encode(w, i, nil) }),
		"png transparent gray":  craftPNG(width, height, 8, 0, false, pngChunk("tRNS", []byte{0, 0})),
		"png noise":             madeOf(t, alpha, png.Encode),
		"gif":                   nil,
		"webp lossy":            nil,
		"webp lossy alpha":      nil,
		"webp lossless":         craftVP8L(width, height, false),
		"webp palette":          craftVP8L(width, height, true),
		"bmp":                   madeOf(t, opaque, bmp.Encode),
		"bmp alpha":             madeOf(t, alpha, bmp.Encode),
		"bmp gray":              madeOf(t, image.NewGray(r), bmp.Encode),
		"tiff":                  madeOf(t, opaque, func(w io.Writer, i image.Image) error { return tiff.Encode(w, i, nil) }),
		"tiff deflate": madeOf(t, image.NewNRGBA(r), func(w io.Writer, i image.Image) error {
			return tiff.Encode(w, i, &tiff.Options{Compression: tiff.Deflate})
		}),
		"tiff 16": madeOf(t, image.NewNRGBA64(r), func(w io.Writer, i image.Image) error {
			return tiff.Encode(w, i, &tiff.Options{Compression: tiff.Deflate})
		}),
		"tiff gray": madeOf(t, image.NewGray(r), func(w io.Writer, i image.Image) error {
			return tiff.Encode(w, i, &tiff.Options{Compression: tiff.Deflate})
		}),
	}
	for _, interlaced := range []bool{false, true} {
		for _, k := range [][2]byte{{1, 0}, {8, 0}, {16, 0}, {8, 2}, {16, 2}, {1, 3}, {8, 3}, {8, 4}, {16, 4}, {8, 6}, {16, 6}} {
			name := "png type " + string('0'+k[1]) + " depth " + map[byte]string{1: "1", 8: "8", 16: "16"}[k[0]]
			if interlaced {
				name += " interlaced"
			}
			all[name] = craftPNG(width, height, k[0], k[1], interlaced)
		}
	}
	paletted := image.NewPaletted(r, palette.Plan9)
	all["gif"] = madeOf(t, paletted, func(w io.Writer, i image.Image) error { return gif.Encode(w, i, nil) })
	for name, img := range map[string]image.Image{"webp lossy": opaque, "webp lossy alpha": alpha} {
		all[name] = madeOf(t, img, func(w io.Writer, i image.Image) error { return webp.Encode(t.Context(), w, rowsOf(i), 90) })
	}
	return all
}
