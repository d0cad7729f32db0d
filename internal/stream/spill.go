package stream

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
)

// spillFile holds the results of one sequence that are too large for memory. It is
// deleted as soon as it is open, so that a hub that is killed leaves nothing
// behind; where the system forbids that (Windows), it is deleted after its last
// use.
//
// The log of the sequence shares it with every frame in a socket queue: a log may
// be dropped while a slow socket has yet to be sent a result. Only the log writes
// to it.
type spillFile struct {
	file *os.File
	name string // to delete at the end; empty if already deleted
	end  int64
	refs atomic.Int32
	// ledger has counted end.
	ledger *ledger
}

// newSpillFile creates a file with one reference, and its folder if necessary. An
// empty dir means the system's default.
func newSpillFile(dir string, g *ledger) (*spillFile, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("stream: spill: %w", err)
		}
	}
	file, err := os.CreateTemp(dir, "comfyhub-stream-*")
	if err != nil {
		return nil, fmt.Errorf("stream: spill: %w", err)
	}
	s := &spillFile{file: file, ledger: g}
	s.refs.Store(1)
	if runtime.GOOS == "windows" || os.Remove(file.Name()) != nil {
		s.name = file.Name()
	}
	return s, nil
}

// write appends data and returns its offset.
func (s *spillFile) write(data []byte) (at int64, err error) {
	if _, err := s.file.WriteAt(data, s.end); err != nil {
		return 0, fmt.Errorf("stream: spill: %w", err)
	}
	at = s.end
	s.end += int64(len(data))
	s.ledger.spill(int64(len(data)))
	return at, nil
}

func (s *spillFile) read(at, size int64) ([]byte, error) {
	data := make([]byte, size)
	if _, err := s.file.ReadAt(data, at); err != nil {
		return nil, fmt.Errorf("stream: spill: %w", err)
	}
	return data, nil
}

// retain adds a reference. Like release, it does nothing for a nil file.
func (s *spillFile) retain() {
	if s != nil {
		s.refs.Add(1)
	}
}

// release gives up a reference; the last one closes the file.
func (s *spillFile) release() {
	if s == nil || s.refs.Add(-1) > 0 {
		return
	}
	s.ledger.spill(-s.end)
	// An error cannot be handled, and nothing depends on the bytes.
	_ = s.file.Close()
	if s.name != "" {
		_ = os.Remove(s.name)
	}
}
