package e2e

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"io"
	"mime/multipart"
)

// These files are small but expensive to read. They are put together by hand:
// an encoder would need as much memory as they are meant to cost.

// deepPNG is a picture with 16 bits per channel.
func deepPNG(width, height uint32) []byte {
	var out bytes.Buffer
	out.WriteString("\x89PNG\r\n\x1a\n")
	chunk := func(kind string, data []byte) {
		_ = binary.Write(&out, binary.BigEndian, uint32(len(data)))
		body := append([]byte(kind), data...)
		out.Write(body)
		_ = binary.Write(&out, binary.BigEndian, crc32.ChecksumIEEE(body))
	}
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, width), height)
	chunk("IHDR", append(header, 16, 6, 0, 0, 0)) // RGBA
	var pixels bytes.Buffer
	deflate, _ := zlib.NewWriterLevel(&pixels, zlib.BestSpeed)
	row := make([]byte, 1+8*int(width))
	for range height {
		_, _ = deflate.Write(row)
	}
	_ = deflate.Close()
	chunk("IDAT", pixels.Bytes())
	chunk("IEND", nil)
	return out.Bytes()
}

// progressiveCMYK is a JPEG whose decoder must hold the coefficients of all
// four components at once. Each block is one bit: no difference.
func progressiveCMYK(width, height uint16) []byte {
	var out bytes.Buffer
	marker := func(kind byte, data ...byte) {
		out.Write([]byte{0xFF, kind})
		_ = binary.Write(&out, binary.BigEndian, uint16(len(data)+2))
		out.Write(data)
	}
	out.Write([]byte{0xFF, 0xD8})
	marker(0xDB, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...)
	frame := []byte{8, byte(height >> 8), byte(height), byte(width >> 8), byte(width), 4}
	scan := []byte{4}
	for c := range byte(4) {
		frame = append(frame, c+1, 0x11, 0)
		scan = append(scan, c+1, 0)
	}
	marker(0xC2, frame...)
	marker(0xC4, append([]byte{0, 1}, make([]byte, 16)...)...) // one code, "0", for no difference
	marker(0xDA, append(scan, 0, 0, 0)...)
	blocks := (int(width) + 7) / 8 * ((int(height) + 7) / 8) * 4
	out.Write(make([]byte, (blocks+7)/8))
	out.Write([]byte{0xFF, 0xD9})
	return out.Bytes()
}

func gzipped(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(data)
	_ = w.Close()
	return out.Bytes()
}

// form is the body of an upload, with the boundary "b".
func form(name string, data []byte) io.Reader {
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	_ = w.SetBoundary("b")
	part, _ := w.CreateFormFile("image", name)
	_, _ = part.Write(data)
	_ = w.Close()
	return &out
}
