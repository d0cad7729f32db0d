package request

import (
	"bytes"
	"encoding/binary"
	"io"
	"time"
)

// film is what a player wants to know of a video before it plays it; zero if unknown.
type film struct {
	Width, Height int
	Length        time.Duration
}

const (
	// maxMoov bounds the box that describes a video. It grows with the number of frames.
	maxMoov = 8 << 20
	// boxHead is the length of a box's size and name.
	boxHead = 8
)

// filmOf reads the boxes of an MP4 or a MOV up to the one that describes it, which is often the
// last. A file that is none of these says nothing.
func filmOf(file io.Reader) (f film) {
	for {
		var head [2 * boxHead]byte
		if _, err := io.ReadFull(file, head[:boxHead]); err != nil {
			return f
		}
		size, name := int64(binary.BigEndian.Uint32(head[:])), string(head[4:boxHead])
		size -= boxHead
		if size == 1-boxHead { // a length of 64 bits follows
			if _, err := io.ReadFull(file, head[boxHead:]); err != nil {
				return f
			}
			size = int64(binary.BigEndian.Uint64(head[boxHead:])) - 2*boxHead
		}
		switch {
		case size < 0, name == "moov" && size > maxMoov:
			return f
		case name == "moov":
			var box bytes.Buffer
			if _, err := io.CopyN(&box, file, size); err == nil {
				f.read(box.Bytes())
			}
			return f
		}
		if _, err := io.CopyN(io.Discard, file, size); err != nil {
			return f
		}
	}
}

// read takes what is known from the boxes in a box.
func (f *film) read(boxes []byte) {
	for len(boxes) >= boxHead {
		size, name := int(binary.BigEndian.Uint32(boxes)), string(boxes[4:boxHead])
		if size < boxHead || size > len(boxes) {
			return
		}
		body := boxes[boxHead:size]
		switch boxes = boxes[size:]; name {
		case "trak":
			f.read(body)
		case "mvhd":
			f.readLength(body)
		case "tkhd":
			f.readSize(body)
		}
	}
}

// readLength reads mvhd: a version, flags, two times, the units in a second, and the length in
// them. In version 1 the times and the length have 64 bits.
func (f *film) readLength(b []byte) {
	const short, long = 20, 32
	var scale, units uint64
	switch {
	case len(b) >= long && b[0] == 1:
		scale, units = uint64(binary.BigEndian.Uint32(b[20:])), binary.BigEndian.Uint64(b[24:])
	case len(b) >= short && b[0] == 0:
		scale, units = uint64(binary.BigEndian.Uint32(b[12:])), uint64(binary.BigEndian.Uint32(b[16:]))
	}
	const day = 24 * 60 * 60
	if scale > 0 && units/scale < day {
		f.Length = time.Duration(float64(units) / float64(scale) * float64(time.Second))
	}
}

// readSize reads tkhd, which ends in a matrix of nine numbers, the width and the height, with 16
// bits after the point. Sound has no size.
func (f *film) readSize(b []byte) {
	const matrix, end = 36, 8
	if len(b) < matrix+end {
		return
	}
	size := b[len(b)-end:]
	w, h := int(binary.BigEndian.Uint16(size)), int(binary.BigEndian.Uint16(size[4:]))
	if w == 0 || h == 0 {
		return
	}
	turn := b[len(b)-end-matrix:]
	if binary.BigEndian.Uint32(turn) == 0 && binary.BigEndian.Uint32(turn[4:]) != 0 { // by a right angle
		w, h = h, w
	}
	f.Width, f.Height = w, h
}
