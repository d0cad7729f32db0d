package picture

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// webpHeader reads chunks up to that of the picture.
func webpHeader(r *bufio.Reader, size int64) (Header, error) {
	h := Header{Format: "webp"}
	if _, err := r.Discard(12); err != nil {
		return h, ErrFormat
	}
	canvas, lossyAlpha := false, false
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return h, ErrFormat
		}
		length := int64(binary.LittleEndian.Uint32(head[4:]))
		switch kind := string(head[:4]); kind {
		case "VP8X":
			start, err := r.Peek(10)
			if err != nil || length != 10 {
				return h, ErrFormat
			}
			const animated, alpha = 2, 16
			if start[0]&animated != 0 {
				return h, fmt.Errorf("%w: an animated WebP", ErrFormat)
			}
			canvas, lossyAlpha = true, start[0]&alpha != 0
			if err := h.sized(1+int(get24(start[4:])), 1+int(get24(start[7:]))); err != nil {
				return h, err
			}
		case "VP8 ", "VP8L":
			start, err := r.Peek(10)
			if err != nil && len(start) < 5 {
				return h, ErrFormat
			}
			return h, h.webpPicture(kind, start, canvas, lossyAlpha, size)
		}
		if _, err := io.CopyN(io.Discard, r, length+length&1); err != nil {
			return h, ErrFormat
		}
	}
}

func get24(b []byte) uint32 { return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 }

func (h *Header) webpPicture(kind string, start []byte, canvas, lossyAlpha bool, size int64) error {
	var width, height int
	if kind == "VP8L" {
		bits := binary.LittleEndian.Uint32(start[1:])
		width, height = 1+int(bits&0x3fff), 1+int(bits>>14&0x3fff)
	} else {
		if len(start) < 10 {
			return ErrFormat
		}
		width, height = int(binary.LittleEndian.Uint16(start[6:])&0x3fff), int(binary.LittleEndian.Uint16(start[8:])&0x3fff)
	}
	// A picture that does not match its canvas is made to deceive.
	if canvas && (width != h.Width || height != h.Height) {
		return ErrFormat
	}
	if err := h.sized(width, height); err != nil {
		return err
	}
	if kind == "VP8L" {
		h.straight, h.alpha = true, true
		h.decoding = lossless(h.pixels(), size)
		return nil
	}
	padded := int64(width+15) / 16 * 16 * (int64(height+15) / 16 * 16)
	h.decoding = padded*3/2 + padded/16 + 32*int64(width) + size + overhead
	h.planar = !lossyAlpha
	if lossyAlpha {
		h.alpha = true
		h.decoding += h.pixels() + lossless(h.pixels(), size)
	}
	return nil
}

// lossless returns what decoding VP8L allocates: the pixels, once more for those of
// a palette, the small pictures of its transforms, and the tables of Huffman codes.
// Each tile of 4 by 4 pixels can have its own codes, at most 2600 in total.
func lossless(pixels, size int64) int64 {
	const (
		most   = 2600
		tables = 84 << 10 // for one set of codes with all symbols used
		// A code must be in the file: this many bytes of tables per byte of it.
		ratio = 400
		plain = 16 << 10 // for one set of codes that use one symbol each
	)
	sets := min(pixels/16+2, size/2+2, most) // a set takes at least 20 bits
	return 8*pixels + pixels + min(sets*tables, sets*plain+ratio*size) + overhead
}
