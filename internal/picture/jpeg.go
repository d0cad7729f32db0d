package picture

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// The JPEG markers that matter here.
const (
	markerSOF0  = 0xc0
	markerSOF2  = 0xc2
	markerRST0  = 0xd0
	markerRST7  = 0xd7
	markerEOI   = 0xd9
	markerSOS   = 0xda
	markerAPP0  = 0xe0
	markerAPP14 = 0xee
)

// jpegHeader reads up to the first scan.
func jpegHeader(r *bufio.Reader) (Header, error) {
	if _, err := r.Discard(2); err != nil {
		return Header{}, ErrFormat
	}
	var f jpegFrame
	for {
		marker, err := jpegMarker(r)
		if err != nil {
			return Header{}, ErrFormat
		}
		if marker == markerSOS {
			return f.header()
		}
		var b [2]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return Header{}, ErrFormat
		}
		length := int(binary.BigEndian.Uint16(b[:])) - len(b)
		if length < 0 {
			return Header{}, ErrFormat
		}
		start, err := r.Peek(min(length, 6+3*4))
		if err != nil {
			return Header{}, ErrFormat
		}
		switch {
		case marker >= markerSOF0 && marker <= markerSOF2:
			if f.found != nil || length > len(start) {
				return Header{}, ErrFormat
			}
			f.found, f.progressive = bytes.Clone(start), marker == markerSOF2
		case marker == markerAPP0 && length >= 5:
			f.jfif = f.jfif || string(start[:5]) == "JFIF\x00"
		case marker == markerAPP14 && length >= 12 && string(start[:5]) == "Adobe":
			f.unknown = start[11] == 0
		}
		if _, err := r.Discard(length); err != nil {
			return Header{}, ErrFormat
		}
	}
}

// jpegMarker reads up to a marker with a segment; like the decoder, it skips
// everything before it.
func jpegMarker(r *bufio.Reader) (byte, error) {
	last := byte(0)
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if last == 0xff && b != 0 && b != 0xff && (b < markerRST0 || b > markerRST7) {
			if b == markerEOI {
				return 0, io.EOF
			}
			return b, nil
		}
		last = b
	}
}

// jpegFrame is what the segments before the first scan contain.
type jpegFrame struct {
	found       []byte // the frame's segment
	progressive bool
	jfif        bool
	unknown     bool // Adobe's transform "unknown": RGB or CMYK
}

// header adds up what the decoder allocates: all samples and, for a progressive
// picture, all coefficients, with 4 bytes each, until the last scan is read.
func (f *jpegFrame) header() (Header, error) {
	h, frame := Header{Format: "jpeg"}, f.found
	if len(frame) < 9 || len(frame) != 6+3*int(frame[5]) || frame[0] != 8 {
		return h, ErrFormat
	}
	if err := h.sized(int(binary.BigEndian.Uint16(frame[3:])), int(binary.BigEndian.Uint16(frame[1:]))); err != nil {
		return h, err
	}
	count := int(frame[5])
	if count != 1 && count != 3 && count != 4 {
		return h, fmt.Errorf("%w: %d components", ErrFormat, count)
	}
	across, down := int64(frame[7]>>4), int64(frame[7]&15)
	if count == 1 {
		across, down = 1, 1
	}
	if across < 1 || down < 1 || across > 4 || down > 4 {
		return h, ErrFormat
	}
	units := ((int64(h.Width) + 8*across - 1) / (8 * across)) * ((int64(h.Height) + 8*down - 1) / (8 * down))
	const block = 64
	samples := int64(0)
	for n := range count {
		hv := frame[7+3*n]
		blocks := int64(hv>>4) * int64(hv&15)
		if count == 1 {
			blocks = 1
		}
		samples += units * blocks * block
	}
	h.decoding = samples + overhead
	if f.progressive {
		h.decoding += 4 * samples
	}
	rgb := count == 3 && !f.jfif && (f.unknown || frame[6] == 'R' && frame[9] == 'G' && frame[12] == 'B')
	if count == 4 || rgb { // combined in a copy
		h.decoding += 4 * h.pixels()
	}
	// A non-progressive picture has at most one scan per component.
	h.scans = 2 * 4
	if f.progressive {
		h.scans = maxScans(h.pixels())
	}
	h.planar = count == 3 && !rgb
	h.settled = count != 3 || rgb || f.jfif
	return h, nil
}
