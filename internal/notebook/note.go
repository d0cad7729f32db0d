package notebook

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"time"
)

// Note is what was noted at once: a few parts, which mean something to whoever has made it.
type Note struct {
	// At is when it was made, to the millisecond.
	At    time.Time
	Parts [][]byte
}

// A note is written as the size of its content and a checksum of it, four bytes each, and the
// content: the time in milliseconds, and each part after its size, as varints.
const headSize = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// size is how many bytes the parts of a note take, more or less.
func (n Note) size() (size int64) {
	for _, part := range n.Parts {
		size += int64(len(part)) + headSize
	}
	return size + 2*headSize
}

// pieces returns what is written for a note. Large parts are not copied.
func (n Note) pieces() [][]byte {
	pieces := [][]byte{binary.AppendVarint(make([]byte, headSize, 64), n.At.UnixMilli())}
	for _, part := range n.Parts {
		last := len(pieces) - 1
		pieces[last] = binary.AppendUvarint(pieces[last], uint64(len(part)))
		pieces = append(pieces, part, make([]byte, 0, binary.MaxVarintLen64))
	}
	size, sum := 0, uint32(0)
	for i, piece := range pieces {
		if i == 0 {
			piece = piece[headSize:]
		}
		size += len(piece)
		sum = crc32.Update(sum, castagnoli, piece)
	}
	binary.LittleEndian.PutUint32(pieces[0], uint32(size)) // #nosec G115 -- see maxNote
	binary.LittleEndian.PutUint32(pieces[0][4:], sum)
	return pieces
}

// write writes a note.
func (n Note) write(w io.Writer) error {
	for _, piece := range n.pieces() {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// cut returns the first note of what was written, and the rest. ok is false if there is none: at
// the end, or where a process was killed as it wrote.
func cut(data []byte) (n Note, rest []byte, ok bool) {
	if len(data) < headSize {
		return Note{}, nil, false
	}
	size, sum := binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint32(data[4:])
	if data = data[headSize:]; uint64(size) > uint64(len(data)) {
		return Note{}, nil, false
	}
	content, rest := data[:size], data[size:]
	if crc32.Checksum(content, castagnoli) != sum {
		return Note{}, nil, false
	}
	content = bytes.Clone(content) // not all of the file stays with one note
	at, used := binary.Varint(content)
	if used <= 0 {
		return Note{}, nil, false
	}
	n.At, content = time.UnixMilli(at), content[used:]
	for len(content) > 0 {
		length, used := binary.Uvarint(content)
		if used <= 0 || length > uint64(len(content)-used) {
			return Note{}, nil, false
		}
		end := used + int(length) // #nosec G115 -- not above the length of a slice
		n.Parts, content = append(n.Parts, content[used:end:end]), content[end:]
	}
	return n, rest, true
}
