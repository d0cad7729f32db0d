package files

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

const pngSignature = "\x89PNG\r\n\x1a\n"

// maxPNGText bounds the text that is carried over, in bytes; Pillow has the same bound.
const maxPNGText = 64 << 20

var errPNGText = errors.New("files: too much text in a PNG")

// copyPNGText writes the text chunks of a PNG to w as they are, framed and in order: they contain
// the workflow. n is the number of bytes of complete chunks. A file that is not a PNG has none; a
// damaged file yields those before the damage, perhaps followed by part of the damaged one.
func copyPNGText(w io.Writer, r io.Reader) (n int64, err error) {
	var signature [len(pngSignature)]byte
	if _, err := io.ReadFull(r, signature[:]); err != nil || string(signature[:]) != pngSignature {
		return 0, nil
	}
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return n, nil
		}
		length := int64(binary.BigEndian.Uint32(head[:4]))
		switch string(head[4:]) {
		case "tEXt", "zTXt", "iTXt":
		case "IEND":
			return n, nil
		default:
			if _, err := io.CopyN(io.Discard, r, length+4); err != nil {
				return n, nil
			}
			continue
		}
		if n+length > maxPNGText {
			return 0, errPNGText
		}
		sum := crc32.NewIEEE()
		_, _ = sum.Write(head[4:])
		if _, err := w.Write(head[:]); err != nil {
			return 0, err
		}
		if _, err := io.CopyN(io.MultiWriter(w, sum), r, length); err != nil {
			return n, nil
		}
		if _, err := w.Write(sum.Sum(nil)); err != nil {
			return 0, err
		}
		if _, err := io.CopyN(io.Discard, r, 4); err != nil {
			return n, nil
		}
		n += length + 12
	}
}

// textWriter puts chunks into a PNG that is written through it, after the header chunk.
type textWriter struct {
	w      io.Writer
	text   []byte
	before int // bytes of signature and header still to come
}

// headerEnd is the length of the signature and the header chunk.
const headerEnd = len(pngSignature) + 8 + 13 + 4

func newTextWriter(w io.Writer, text []byte) *textWriter {
	return &textWriter{w: w, text: text, before: headerEnd}
}

func (t *textWriter) Write(p []byte) (int, error) {
	head := min(t.before, len(p))
	n, err := t.w.Write(p[:head])
	t.before -= n
	if err != nil || t.before > 0 {
		return n, err
	}
	if t.text != nil {
		if _, err := t.w.Write(t.text); err != nil {
			return n, err
		}
		t.text = nil
	}
	m, err := t.w.Write(p[head:])
	return n + m, err
}
