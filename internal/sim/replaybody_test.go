package sim

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"image/color"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// body rebuilds a request body from what the recorder kept.
func (r *replay) body(rec *pyjson.Object) (body []byte, contentType string) {
	if rec.Object("headers").String("Content-Encoding") == "gzip" {
		var b bytes.Buffer
		zw := gzip.NewWriter(&b)
		_, _ = zw.Write([]byte("{}")) // a Buffer takes everything
		_ = zw.Close()
		return b.Bytes(), ""
	}
	if v, ok := rec.Get("json"); ok {
		return []byte(r.renamed(string(pyjson.Marshal(v)))), ""
	}
	if v, ok := rec.Get("text"); ok {
		// The recorder read broken UTF-8 as U+FFFD.
		return bytes.ReplaceAll([]byte(r.renamed(pyStr(v))), []byte("\uFFFD"), []byte{0xFF}), ""
	}
	parts := rec.Array("multipart")
	if parts == nil {
		n, _ := numberOption(rec, "bytes")
		return bytes.Repeat([]byte(" "), int(n)), ""
	}
	const boundary = "----replayed"
	var b bytes.Buffer
	for _, part := range parts {
		p := part.(*pyjson.Object)
		fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=\"%s\"", boundary, p.String("name"))
		if !p.Has("filename") {
			fmt.Fprintf(&b, "\r\n\r\n%s\r\n", r.renamed(p.String("value")))
			continue
		}
		fmt.Fprintf(&b, "; filename=\"%s\"\r\nContent-Type: %s\r\n\r\n", p.String("filename"), p.String("type"))
		b.Write(fileContent(p))
		b.WriteString("\r\n")
	}
	fmt.Fprintf(&b, "--%s--\r\n", boundary)
	return b.Bytes(), "multipart/form-data; boundary=" + boundary
}

// fileContent makes up a file of the recorded size that differs where the
// recorded hashes differ. What can be a picture is one.
func fileContent(part *pyjson.Object) []byte {
	size, _ := numberOption(part, "bytes")
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
	picture := encodePNG(flat(side, side, color.NRGBA{raw[0], raw[1], raw[2], 128}), nil)
	const chunk = 12 // length, type and checksum
	if pad := int(size) - len(picture) - chunk; pad >= 0 {
		// A private chunk, which nobody copies.
		return append(appendChunk(slices.Clone(picture[:pngHeaderSize]), "prIv", make([]byte, pad)), picture[pngHeaderSize:]...)
	}
	return data
}
