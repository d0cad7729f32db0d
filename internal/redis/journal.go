package redis

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
)

// shortenFrom is the size from which on a journal that has doubled since it
// was last written anew is written anew.
const shortenFrom = 8 << 20

// maxPending bounds what waits for a disk that takes nothing.
const maxPending = 64 << 20

// journal is the append-only file of the embedded server, in the format of
// Redis's own: the commands that scripts have done, one MULTI block a script.
// A block that is not complete never happened.
//
// It has two locks. mu guards what scripts touch and is held for moments,
// inside the server's own lock; files guards the file and is held while the
// disk works, which makes it the group commit: whoever waited for it mostly
// finds that the one before has synced his block, too.
type journal struct {
	path   string
	server *embedded
	log    *slog.Logger

	mu        sync.Mutex
	block     []byte // of the script that runs
	pending   []byte // blocks that are not in the file
	committed int64  // bytes ever committed
	last      snapshot

	failing atomic.Bool // the last sync failed

	files  sync.Mutex
	file   *os.File
	size   int64 // of the file, all of it whole blocks
	base   int64 // size after the last rewrite
	synced int64 // of committed, what is on the disk
	unsure bool  // a sync failed: what the file holds is not known
}

// openJournal opens the file, makes it if need be, and restores the server.
func openJournal(path string, e *embedded, log *slog.Logger) (*journal, error) {
	// A rewrite that was cut short leaves its file behind.
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	size, err := restore(f, e, log)
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &journal{path: path, server: e, log: log, file: f, size: size, base: size}, nil
}

var (
	beginBlock = appendCommand(nil, "MULTI")
	endBlock   = appendCommand(nil, "EXEC")
)

// record adds a command to the block of the script that runs.
func (j *journal) record(args []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.block) == 0 {
		j.block = append(j.block, beginBlock...)
	}
	j.block = appendCommand(j.block, args...)
}

// commit ends the block of the script that ran.
func (j *journal) commit() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.block) == 0 {
		return
	}
	j.block = append(j.block, endBlock...)
	j.pending = append(j.pending, j.block...)
	j.committed += int64(len(j.block))
	j.block = j.block[:0]
}

// sync returns when all that is committed now is on the disk.
func (j *journal) sync() (err error) {
	j.mu.Lock()
	target := j.committed
	j.mu.Unlock()
	j.files.Lock()
	defer j.files.Unlock()
	defer func() { j.failing.Store(err != nil) }()
	if j.synced >= target && !j.unsure {
		return nil
	}
	if j.unsure {
		// After a failed fsync the kernel may have dropped the data and
		// call the next one a success; only a new file is certain.
		return j.rewrite()
	}
	return j.flush()
}

// usable fails while the disk takes nothing: what a script did then could not
// be kept, and its caller would do it again.
func (j *journal) usable() error {
	if !j.failing.Load() {
		return nil
	}
	return j.sync()
}

// flush writes what is pending. The caller holds files.
func (j *journal) flush() error {
	j.mu.Lock()
	data, upTo := j.pending, j.committed
	j.pending = nil
	j.mu.Unlock()
	if _, err := j.file.WriteAt(data, j.size); err != nil {
		// The disk is full, most likely: what was half written goes, and the
		// next sync tries again.
		j.putBack(data)
		return errors.Join(err, j.file.Truncate(j.size))
	}
	if err := j.file.Sync(); err != nil {
		j.unsure = true
		return err
	}
	j.size += int64(len(data))
	j.synced = upTo
	return nil
}

// putBack takes up again what could not be written. More than a rewrite would
// write is not worth keeping.
func (j *journal) putBack(data []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(data, j.pending...)
	if len(j.pending) > maxPending {
		j.pending, j.unsure = nil, true
	}
}

// shorten writes the file anew when it has doubled.
func (j *journal) shorten() error {
	j.files.Lock()
	defer j.files.Unlock()
	if j.size < shortenFrom || j.size < 2*j.base {
		return nil
	}
	return j.rewrite()
}

// close writes the file anew if anything happened since it was.
func (j *journal) close() error {
	if err := j.sync(); err != nil {
		return err
	}
	j.files.Lock()
	defer j.files.Unlock()
	if j.size == j.base {
		return nil
	}
	return j.rewrite()
}

// syncFolder makes a new name in a folder last.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it has no such thing
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
