package engine

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// farFrom is the size in bytes from which on a string stays in the file.
// Shorter ones cost less in memory than the place where they are.
const farFrom = 512

// datum is a string that a key or a field holds: in memory, or far away in the
// file.
type datum struct {
	text string
	far  *blob
}

func (d datum) size() int {
	if d.far != nil {
		return d.far.size
	}
	return len(d.text)
}

// read gives the string. It may have to read the file.
func (d datum) read() (string, error) {
	if d.far != nil {
		return d.far.read()
	}
	return d.text, nil
}

// blob is a large string. It is in memory until the file has it.
type blob struct {
	size int
	at   atomic.Pointer[place]
}

// place is where a blob is: in a file, or in text if file is nil. A file that
// was replaced stays open until the last place in it is gone: os.File closes
// itself then.
type place struct {
	text   string
	file   *os.File
	offset int64
}

// errUnreadable says that the file did not give back what it was given.
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

// moved notes that a file has the blob now.
func (b *blob) moved(file *os.File, offset int64) { b.at.Store(&place{file: file, offset: offset}) }
