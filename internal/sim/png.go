package sim

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/jpeg"
	"image/png"
)

// pngText is a tEXt chunk. ComfyUI puts these into its pictures so that they can
// be opened as workflows.
type pngText struct{ key, text string }

// pngHeaderSize is the size of the signature and the IHDR chunk. Text chunks go after them.
const pngHeaderSize = 8 + 4 + 4 + 13 + 4

// encodePNG encodes a picture with text chunks. An opaque one has no alpha
// channel.
func encodePNG(img image.Image, chunks []pngText) []byte {
	var b bytes.Buffer
	enc := png.Encoder{CompressionLevel: png.BestSpeed}
	_ = enc.Encode(&b, img) // a Buffer accepts everything, and sizes are at least 1
	data := b.Bytes()
	if len(chunks) == 0 {
		return data
	}
	out := append([]byte(nil), data[:pngHeaderSize]...)
	for _, c := range chunks {
		out = appendChunk(out, "tEXt", []byte(c.key+"\x00"+c.text))
	}
	return append(out, data[pngHeaderSize:]...)
}

func appendChunk(dst []byte, kind string, data []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(data)))
	start := len(dst)
	dst = append(append(dst, kind...), data...)
	return binary.BigEndian.AppendUint32(dst, crc32.ChecksumIEEE(dst[start:]))
}

// pngTexts returns the tEXt chunks of a PNG. A broken file may give fewer.
func pngTexts(data []byte) []pngText {
	var chunks []pngText
	for at := 8; at+12 <= len(data); {
		size := int(binary.BigEndian.Uint32(data[at:]))
		if size < 0 || at+12+size > len(data) {
			break
		}
		if string(data[at+4:at+8]) == "tEXt" {
			if key, text, ok := bytes.Cut(data[at+8:at+8+size], []byte{0}); ok {
				chunks = append(chunks, pngText{string(key), string(text)})
			}
		}
		at += 12 + size
	}
	return chunks
}

// jfifHeader is the start of image and an APP0 segment of version 1.01 without a
// thumbnail.
const jfifHeader = "\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"

// encodeJPEG encodes with a quality of 1 to 100.
func encodeJPEG(img image.Image, quality int) []byte {
	var b bytes.Buffer
	_ = jpeg.Encode(&b, img, &jpeg.Options{Quality: min(100, max(1, quality))}) // a Buffer accepts everything
	// Pillow writes a JFIF header and Go's encoder does not. Clients look for it.
	return append([]byte(jfifHeader), b.Bytes()[2:]...)
}
