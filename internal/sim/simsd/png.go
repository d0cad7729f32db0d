package simsd

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
)

// colorOf is the colour of a seed.
func colorOf(seed int) color.Color {
	return color.RGBA{uint8(seed), uint8(seed >> 8), uint8(seed * 37), 255}
}

// paint paints a picture whose left half has one colour and whose right half another, with
// A1111's text about it if there is one.
func paint(width, height int, left, right color.Color, parameters string) []byte {
	p := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{left, right})
	for i := range p.Pix {
		if 2*(i%p.Stride) >= width {
			p.Pix[i] = 1
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, p); err != nil { // into memory
		panic(err)
	}
	if parameters == "" {
		return out.Bytes()
	}
	const head = 8 + 25 // the signature and IHDR
	chunk := append([]byte("tEXtparameters\x00"), parameters...)
	all := append([]byte(nil), out.Bytes()[:head]...)
	all = binary.BigEndian.AppendUint32(all, uint32(len(chunk)-4))
	all = append(all, chunk...)
	all = binary.BigEndian.AppendUint32(all, crc32.ChecksumIEEE(chunk))
	return append(all, out.Bytes()[head:]...)
}

// parametersOf returns A1111's text in a picture.
func parametersOf(data []byte) string {
	for at := 8; at+12 <= len(data); {
		size := int(binary.BigEndian.Uint32(data[at:]))
		if size < 0 || at+12+size > len(data) {
			return ""
		}
		if text, ok := bytes.CutPrefix(data[at+4:at+8+size], []byte("tEXtparameters\x00")); ok {
			return string(text)
		}
		at += 12 + size
	}
	return ""
}
