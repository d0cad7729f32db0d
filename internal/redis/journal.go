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

// shortenFrom is the minimum size at which a journal is rewritten once it has
// doubled since the last rewrite.
const shortenFrom = 8 << 20

// maxPending bounds what waits for a disk that cannot be written.
const maxPending = 64 << 20

// journal is the append-only file of the embedded server. It has the format of
// Redis's own: the commands that scripts have executed, with one MULTI block per
// script. An incomplete block never happened.
//
// It has two locks. mu guards what scripts touch and is held only briefly, inside
// the server's own lock. files guards the file and is held while the disk works.
// That makes it a group commit: whoever waited for the lock usually finds that the
// previous holder has already synced its block.
type journal struct {
	path   string
	server *embedded
	log    *slog.Logger

	mu        sync.Mutex
	block     []byte // of the running script
	pending   []byte // blocks that are not in the file yet
	committed int64  // bytes ever committed
	last      snapshot

	failing atomic.Bool // the last sync failed

	files  sync.Mutex
	file   *os.File
	size   int64 // of the file, complete blocks only
	base   int64 // size after the last rewrite
	synced int64 // how much of committed is on disk
	unsure bool  // a sync failed: the file's content is unknown
}

// openJournal opens the file, creating it if necessary, and restores the server
// from it.
func openJournal(path string, e *embedded, log *slog.Logger) (*journal, error) {
	// An interrupted rewrite leaves its file behind.
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

// record adds a command to the block of the running script.
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

// sync returns once everything committed by now is on disk.
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
		// After a failed fsync the kernel may have dropped the data and report
		// success for the next one; only a new file is safe.
		return j.rewrite()
	}
	return j.flush()
}

// usable returns an error while the disk cannot be written: a script's changes
// could not be kept, and its caller would repeat them.
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
		// The disk is probably full: remove what was half written; the next sync
		// tries again.
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

// putBack keeps what could not be written for the next attempt. Beyond the size of
// a rewrite, it is not worth keeping.
func (j *journal) putBack(data []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(data, j.pending...)
	if len(j.pending) > maxPending {
		j.pending, j.unsure = nil, true
	}
}

// shorten rewrites the file once it has doubled.
func (j *journal) shorten() error {
	j.files.Lock()
	defer j.files.Unlock()
	if j.size < shortenFrom || j.size < 2*j.base {
		return nil
	}
	return j.rewrite()
}

// close rewrites the file if anything has happened since the last rewrite.
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

// syncFolder makes a new name in a folder durable.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // no such thing here
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
