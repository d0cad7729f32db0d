package files

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

const pngSignature = "\x89PNG\r\n\x1a\n"

// maxPNGText bounds the text that is carried over, in bytes; Pillow has the
// same bound.
const maxPNGText = 64 << 20

var errPNGText = errors.New("files: too much text in a PNG")

// readPNGText collects the text chunks of a PNG as they are, framed and in
// order: they hold the workflow. What is no PNG has none, and a damaged file
// gives those before the damage.
func readPNGText(r io.Reader) ([]byte, error) {
	var signature [len(pngSignature)]byte
	if _, err := io.ReadFull(r, signature[:]); err != nil || string(signature[:]) != pngSignature {
		return nil, nil
	}
	var text []byte
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return text, nil
		}
		length := int64(binary.BigEndian.Uint32(head[:4]))
		switch string(head[4:]) {
		case "tEXt", "zTXt", "iTXt":
		case "IEND":
			return text, nil
		default:
			if _, err := io.CopyN(io.Discard, r, length+4); err != nil {
				return text, nil
			}
			continue
		}
		if int64(len(text))+length > maxPNGText {
			return nil, errPNGText
		}
		// Room for what is really there, not for what the length claims.
		body, err := io.ReadAll(io.LimitReader(r, length+4))
		if err != nil || int64(len(body)) < length+4 {
			return text, nil
		}
		text = append(text, head[:]...)
		text = append(text, body[:length]...)
		text = binary.BigEndian.AppendUint32(text, crc32.ChecksumIEEE(text[len(text)-int(length)-4:]))
	}
}

// textWriter puts chunks into a PNG that is written through it, behind the
// header chunk.
type textWriter struct {
	w      io.Writer
	text   []byte
	before int // bytes of signature and header that are still to come
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
