package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// largeFrom is the size in bytes at and above which a string stays in the file.
// A shorter one takes less memory than the place where it is.
const largeFrom = 512

// datum is a string that a key or a field holds, in memory or in the file.
type datum struct {
	text string
	blob *blob // of a large string; text is empty then
}

func (d datum) size() int {
	if d.blob != nil {
		return d.blob.size
	}
	return len(d.text)
}

// read returns the string, which may mean reading the file.
func (d datum) read() (string, error) {
	if d.blob != nil {
		return d.blob.read()
	}
	return d.text, nil
}

// blob is a large string. It is in memory until it has been written to the file.
type blob struct {
	size int
	at   atomic.Pointer[place]
}

// place is where a blob is: in a file, or in text if file is nil. A file that has
// been replaced stays open while any place refers to it; os.File closes itself when
// the last one is garbage.
type place struct {
	text   string
	file   *os.File
	offset int64
}

// errUnreadable means that the file could not be read back.
var errUnreadable = errors.New("IOERR the journal of the queue cannot be read")

func newBlob(text string) *blob {
	b := &blob{size: len(text)}
	b.at.Store(&place{text: text})
	return b
}

func (b *blob) read() (string, error) {
	at := b.at.Load()
	if at.file == nil {
		return at.text, nil
	}
	data := make([]byte, b.size)
	if _, err := at.file.ReadAt(data, at.offset); err != nil {
		return "", fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return string(data), nil
}

// writeTo writes the blob, without holding it in memory if it is in a file.
func (b *blob) writeTo(w io.Writer) error {
	at := b.at.Load()
	if at.file == nil {
		_, err := io.WriteString(w, at.text)
		return err
	}
	n, err := io.Copy(w, io.NewSectionReader(at.file, at.offset, int64(b.size)))
	if err == nil && n < int64(b.size) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return nil
}

// moved records that the blob is in a file now.
func (b *blob) moved(file *os.File, offset int64) { b.at.Store(&place{file: file, offset: offset}) }
