package intake

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
)

const (
	// maxRatio is how many times larger a body may become when it is decompressed.
	// Workflows compress to a twentieth, bombs to a thousandth.
	maxRatio = 100
	// freeInflation is the size below which the ratio does not matter: a short text
	// of blanks can have any ratio.
	freeInflation = 1 << 20
)

// unpacked reads the body of a request from body, without its Content-Encoding.
// Like ComfyUI's web server it decodes gzip, and deflate with or without a header.
// Other encodings are passed on unchanged.
func unpacked(r *http.Request, body io.Reader) (io.Reader, error) {
	sent := &counter{inner: body}
	var plain io.Reader
	var err error
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "gzip":
		plain, err = gzip.NewReader(sent)
	case "deflate":
		buffered := bufio.NewReader(sent)
		// The first byte of a zlib header names the method, 8; no raw deflate
		// stream made for browsers begins like that.
		if head, _ := buffered.Peek(1); len(head) == 1 && head[0]&0xF == 8 {
			plain, err = zlib.NewReader(buffered)
		} else {
			plain = flate.NewReader(buffered)
		}
	default:
		return body, nil
	}
	if err != nil {
		return nil, err
	}
	return &inflating{plain: plain, sent: sent}, nil
}

// counter counts what is read.
type counter struct {
	inner io.Reader
	n     int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.inner.Read(p)
	c.n += int64(n)
	return n, err
}

// inflating is a decompressed body that must not grow too large.
type inflating struct {
	plain io.Reader
	sent  *counter
	n     int64
}

func (i *inflating) Read(p []byte) (int, error) {
	n, err := i.plain.Read(p)
	i.n += int64(n)
	if i.n > freeInflation+maxRatio*i.sent.n {
		return 0, ErrInflated
	}
	return n, err
}
