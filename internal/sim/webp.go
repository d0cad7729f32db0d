package sim

import (
	"bytes"
	"encoding/binary"
	"image"
)

// encodeWebP encodes a picture as a complete file.
func encodeWebP(img *image.NRGBA) []byte {
	return webpFile(chunk("VP8L", losslessWebP(img)))
}

// encodeAnimatedWebP encodes pictures of one size as an endless animation.
func encodeAnimatedWebP(frames images, fps float64) []byte {
	w, h := uint32(frames[0].Bounds().Dx()-1), uint32(frames[0].Bounds().Dy()-1)
	const animated, alpha = 0x02, 0x10
	chunks := [][]byte{
		chunk("VP8X", []byte{animated | alpha, 0, 0, 0}, uint24(w), uint24(h)),
		chunk("ANIM", make([]byte, 6)), // no background, endless
	}
	var data []byte
	for i, img := range frames {
		if i == 0 || img != frames[i-1] { // batches often repeat a picture
			data = chunk("VP8L", losslessWebP(img))
		}
		chunks = append(chunks, chunk("ANMF", uint24(0), uint24(0), uint24(w), uint24(h), uint24(uint32(1000/fps)), []byte{0}, data))
	}
	return webpFile(chunks...)
}

func webpFile(chunks ...[]byte) []byte {
	return chunk("RIFF", append([][]byte{[]byte("WEBP")}, chunks...)...)
}

// chunk returns a chunk of a file: its kind, its length and its content, padded to
// an even length.
func chunk(kind string, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	out := binary.LittleEndian.AppendUint32([]byte(kind), uint32(len(body)))
	out = append(out, body...)
	if len(body)%2 == 1 {
		out = append(out, 0)
	}
	return out
}

func uint24(v uint32) []byte { return []byte{byte(v), byte(v >> 8), byte(v >> 16)} }

// losslessWebP encodes a picture losslessly and practically without compression.
// Each channel of each pixel is written with an eight-bit code. That is the
// simplest kind of WebP file, and enough for previews that any reader can show.
func losslessWebP(img *image.NRGBA) []byte {
	w, h := img.Bounds().Dx(), img.Bounds().Dy()
	b := &bitWriter{}
	b.write(0x2F, 8) // signature of a lossless stream
	b.write(uint32(w-1), 14)
	b.write(uint32(h-1), 14)
	b.write(1, 1) // alpha is used
	b.write(0, 3) // version
	b.write(0, 1) // no transform
	b.write(0, 1) // no colour cache
	b.write(0, 1) // one set of codes for the whole picture
	const greens = 256 + 24
	b.flatCode(greens) // green, and lengths of copies that never occur
	b.flatCode(256)    // red
	b.flatCode(256)    // blue
	b.flatCode(256)    // alpha
	b.write(1, 1)      // distances: a simple code
	b.write(0, 1)      // of one symbol
	b.write(0, 1)      // given in one bit
	b.write(0, 1)      // which is 0
	for y := range h {
		for x := range w {
			c := img.NRGBAAt(img.Bounds().Min.X+x, img.Bounds().Min.Y+y)
			for _, v := range []uint8{c.G, c.R, c.B, c.A} {
				b.write(reversed(v), 8)
			}
		}
	}
	return b.flush()
}

// bitWriter packs bits, least significant first.
type bitWriter struct {
	out  []byte
	acc  uint64
	bits uint
}

func (b *bitWriter) write(v uint32, n uint) {
	b.acc |= uint64(v) << b.bits
	b.bits += n
	for b.bits >= 8 {
		b.out = append(b.out, byte(b.acc))
		b.acc >>= 8
		b.bits -= 8
	}
}

func (b *bitWriter) flush() []byte {
	if b.bits > 0 {
		b.write(0, 8-b.bits)
	}
	return b.out
}

// flatCode writes a prefix code that assigns eight bits to each of the first 256
// symbols of an alphabet, and none to the rest. The lengths are written with a code
// for code lengths, which has two symbols here: 0 and 8.
func (b *bitWriter) flatCode(alphabet int) {
	b.write(0, 1) // a normal code
	// Lengths for the code of code lengths come in a fixed order, in which 0 is
	// the third and 8 the twelfth.
	order := [...]int{17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8}
	b.write(uint32(len(order)-4), 4)
	for _, symbol := range order {
		length := uint32(0)
		if symbol == 0 || symbol == 8 {
			length = 1
		}
		b.write(length, 3)
	}
	b.write(0, 1) // as many lengths as the alphabet has symbols
	for symbol := range alphabet {
		if symbol < 256 {
			b.write(1, 1) // length 8
		} else {
			b.write(0, 1) // length 0
		}
	}
}

// reversed converts a value to its code, which is written most significant bit
// first.
func reversed(v uint8) uint32 {
	var out uint32
	for i := range 8 {
		out = out<<1 | uint32(v>>i)&1
	}
	return out
}
