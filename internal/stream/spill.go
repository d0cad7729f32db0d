package stream

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
)

// spillFile holds the results of one sequence that are too many for memory.
// It is deleted as soon as it is open, so that a hub that is killed leaves
// nothing behind; where the system forbids that (Windows) it is deleted when
// the last user is gone.
//
// It is shared by the log of the sequence and by every frame that waits in a
// socket queue: a log may be dropped while a slow socket still has to be sent
// a result. Writes are the log's alone.
type spillFile struct {
	file *os.File
	name string // to delete at the end; empty when already deleted
	end  int64
	refs atomic.Int32
	// ledger has counted end.
	ledger *ledger
}

// newSpillFile makes a file with one user, and its folder if need be; an empty
// dir is the system's.
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

// write appends data and returns where it lies.
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

// retain adds a user. It does nothing for a nil file, nor does release.
func (s *spillFile) retain() {
	if s != nil {
		s.refs.Add(1)
	}
}

// release takes a user away; the last one closes the file.
func (s *spillFile) release() {
	if s == nil || s.refs.Add(-1) > 0 {
		return
	}
	s.ledger.spill(-s.end)
	// Nothing can be done about an error, and nothing depends on the bytes.
	_ = s.file.Close()
	if s.name != "" {
		_ = os.Remove(s.name)
	}
}
