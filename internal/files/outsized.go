package files

import (
	"errors"
	"fmt"
	"io"
)

const (
	// maxOutput bounds one output, in bytes. An object store takes none of more than 80 GB.
	maxOutput = 64 << 30
	// smallOutput is the largest output that may take what should stay free in the storage.
	smallOutput = 1 << 30
)

// errOutsized says that an instance sends more for one output than the hub takes. It is final: the
// instance would send it again.
var errOutsized = errors.New("files: the instance sends too much for one file")

// sized reads an output of an announced size, -1 for none, as far as the hub takes it. The error is
// ErrStorage if there is no room for what was announced.
func (c *Collector) sized(from io.Reader, size int64) (io.Reader, error) {
	switch {
	case size > c.largest:
		return nil, fmt.Errorf("%w: it announces %d bytes", errOutsized, size)
	case size > c.small && size > c.room():
		return nil, fmt.Errorf("%w: no room for an output of %d bytes", ErrStorage, size)
	}
	return &sizedReader{from: from, c: c, size: size}, nil
}

// sizedReader ends an output that outgrows what the hub takes.
type sizedReader struct {
	from io.Reader
	c    *Collector
	size int64 // as announced, -1 for none
	read int64
}

// Read implements [io.Reader].
func (s *sizedReader) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.read += int64(n)
	switch {
	case s.read > s.c.largest, s.size >= 0 && s.read > s.size:
		return 0, fmt.Errorf("%w: more than %d bytes", errOutsized, s.read-int64(n))
	case s.size < 0 && s.read > s.c.small && s.c.room() <= 0:
		return 0, fmt.Errorf("%w: it does not say how much, and after %d bytes there is no room", errOutsized, s.read)
	}
	return n, err
}
