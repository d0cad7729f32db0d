package sim

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/jpeg"
	"math"
)

// encodeMP4 encodes pictures as an MP4 file with one Motion JPEG track, which
// players and chat programs accept as a video without an H.264 encoder. fps is
// pictures per second.
func encodeMP4(frames images, fps float64) ([]byte, error) {
	var media bytes.Buffer
	sizes := make([]uint32, len(frames))
	var last []byte
	for i, img := range frames {
		if i == 0 || img != frames[i-1] { // batches often repeat a picture
			var b bytes.Buffer
			if err := jpeg.Encode(&b, img, nil); err != nil {
				return nil, err
			}
			last = b.Bytes()
		}
		media.Write(last)
		sizes[i] = uint32(len(last))
	}
	head := box("ftyp", []byte("isom\x00\x00\x02\x00isomiso2mp41"))
	const boxHead = 8
	offset := uint32(len(head) + boxHead)
	out := append(head, box("mdat", media.Bytes())...)
	return append(out, movie(frames[0].Bounds(), sizes, offset, fps)...), nil
}

// movie returns the table of contents. The pictures of the track are stored one
// after another from offset on.
func movie(bounds image.Rectangle, sizes []uint32, offset uint32, fps float64) []byte {
	const ticks = 90_000 // a second
	each := uint32(math.Round(ticks / fps))
	length := each * uint32(len(sizes))
	w, h := uint16(bounds.Dx()), uint16(bounds.Dy())

	table := fields(uint32(0), uint32(len(sizes)))
	for _, size := range sizes {
		table = binary.BigEndian.AppendUint32(table, size)
	}
	samples := box("stbl",
		full("stsd", uint32(1), sampleEntry(w, h)),
		full("stts", uint32(1), uint32(len(sizes)), each),
		full("stsc", uint32(1), uint32(1), uint32(len(sizes)), uint32(1)),
		full("stsz", table),
		full("stco", uint32(1), offset),
	)
	// A URL without text: the media is in this file.
	here := box("url ", []byte{0, 0, 0, 1})
	media := box("mdia",
		full("mdhd", uint32(0), uint32(0), uint32(ticks), length, uint16(0x55C4), uint16(0)), // language "und"
		full("hdlr", uint32(0), []byte("vide"), make([]byte, 12), []byte("video\x00")),
		box("minf",
			box("vmhd", []byte{0, 0, 0, 1}, make([]byte, 8)),
			box("dinf", full("dref", uint32(1), here)),
			samples),
	)
	identity := fields(uint32(0x10000), make([]byte, 12), uint32(0x10000), make([]byte, 12), uint32(0x40000000))
	return box("moov",
		full("mvhd", uint32(0), uint32(0), uint32(ticks), length, uint32(0x10000), uint16(0x100), make([]byte, 10), identity, make([]byte, 24), uint32(2)),
		box("trak",
			// Flags 3: enabled, and a part of the presentation.
			box("tkhd", fields(uint32(3), uint32(0), uint32(0), uint32(1), uint32(0), length, make([]byte, 16), identity, uint32(w)<<16, uint32(h)<<16)),
			media),
	)
}

// sampleEntry says that the pictures are JPEG.
func sampleEntry(w, h uint16) []byte {
	const jpegObject = 0x6C
	decoder := append([]byte{4, 13, jpegObject, 0x11}, make([]byte, 11)...) // descriptor 4: visual stream, rates unknown
	stream := append([]byte{3, byte(3 + len(decoder) + 3), 0, 1, 0}, decoder...)
	stream = append(stream, 6, 1, 2)
	const resolution = 72 << 16
	return box("mp4v",
		make([]byte, 6), fields(uint16(1)), make([]byte, 16), fields(w, h, uint32(resolution), uint32(resolution), uint32(0), uint16(1)),
		make([]byte, 32), fields(uint16(24), uint16(0xFFFF)),
		full("esds", stream))
}

// box returns one box of the file: its length, its kind and its content.
func box(kind string, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	out := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	return append(append(out, kind...), body...)
}

// full is a box with version 0 and no flags.
func full(kind string, values ...any) []byte {
	return box(kind, make([]byte, 4), fields(values...))
}

// fields writes numbers, most significant byte first, and bytes.
func fields(values ...any) (out []byte) {
	for _, v := range values {
		switch v := v.(type) {
		case uint16:
			out = binary.BigEndian.AppendUint16(out, v)
		case uint32:
			out = binary.BigEndian.AppendUint32(out, v)
		case []byte:
			out = append(out, v...)
		}
	}
	return out
}
