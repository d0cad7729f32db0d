package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/durable"
)

const (
	journalFile = "queue.aof"
	lockFile    = "queue.lock"
)

// shortenFrom is the size from which on a journal that has doubled since it
// was last rewritten is rewritten.
const shortenFrom = 8 << 20

// maxPending bounds what waits for a disk that takes nothing.
const maxPending = 64 << 20

// journal is the append-only file, in the format of Redis's own: the commands
// that scripts have done, one MULTI block a script. A block that is not
// complete never happened.
//
// It has two locks. mu guards what scripts touch and is held for moments,
// inside the engine's own lock; files guards the file and is held while the
// disk works, which makes it the group commit: whoever waited for it mostly
// finds that the one before has synced their block, too.
type journal struct {
	// folder opens files such that they can be replaced while they are open, on Windows as well,
	// where a plain os.OpenFile forbids that.
	folder *os.Root
	engine *Engine
	log    *slog.Logger

	mu        sync.Mutex
	block     chunk // of the script that runs
	pending   chunk // blocks that are not in the file
	committed int64 // bytes ever committed

	failing atomic.Bool // the last sync failed

	files sync.Mutex
	// write is File.WriteAt, but in tests of a full disk.
	write  func(f *os.File, p []byte, offset int64) (int, error)
	file   *os.File
	size   int64 // of the file, all of it whole blocks
	base   int64 // size after the last rewrite
	synced int64 // of committed, what is on the disk
	unsure bool  // a sync failed: what the file holds is not known
	// tail are the blobs written to the file since a rewrite began, with their
	// offsets; nil while none is under way.
	tail []located
	// rewriting says that a rewrite goes on beside all else; failed that the
	// file has changed in a way that it cannot follow.
	rewriting, failed bool
	retry             time.Time // no rewrite before
}

// chunk is a part of the journal, and where the large strings in it are.
type chunk struct {
	data  []byte
	blobs []located
}

// located is a blob at an offset, of a chunk or of the file.
type located struct {
	blob   *blob
	offset int64
}

// add appends another chunk.
func (c *chunk) add(other chunk) {
	shift := int64(len(c.data))
	c.data = append(c.data, other.data...)
	for _, l := range other.blobs {
		c.blobs = append(c.blobs, located{l.blob, l.offset + shift})
	}
}

// openJournal opens the file, makes it if need be, and restores the engine.
func openJournal(dir string, e *Engine) (_ *journal, err error) {
	folder, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			folder.Close()
		}
	}()
	for _, suffix := range []string{newSuffix, overSuffix} {
		// A rewrite that was cut short leaves its file behind.
		if err := folder.Remove(journalFile + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	f, err := folder.OpenFile(journalFile, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	size, err := restore(f, e.keys, e.log)
	if err == nil {
		err = durable.SyncFolder(dir)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, journalFile), err)
	}
	return &journal{folder: folder, engine: e, log: e.log, write: (*os.File).WriteAt, file: f, size: size, base: size}, nil
}

var (
	beginBlock = appendCommand(nil, "MULTI")
	endBlock   = appendCommand(nil, "EXEC")
)

// record adds a command to the block of the script that runs, with the large
// strings among its arguments.
func (j *journal) record(args []string, fresh []freshBlob) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.block.data) == 0 {
		j.block.data = append(j.block.data, beginBlock...)
	}
	data := appendHead(j.block.data, '*', len(args))
	for n, arg := range args {
		data = appendHead(data, '$', len(arg))
		for len(fresh) > 0 && fresh[0].argument == n {
			j.block.blobs = append(j.block.blobs, located{fresh[0].blob, int64(len(data))})
			fresh = fresh[1:]
		}
		data = append(data, arg...)
		data = append(data, "\r\n"...)
	}
	j.block.data = data
}

// commit ends the block of the script that ran.
func (j *journal) commit() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.block.data) == 0 {
		return
	}
	j.block.data = append(j.block.data, endBlock...)
	j.committed += int64(len(j.block.data))
	if len(j.pending.data) == 0 && len(j.block.data) >= largeFrom {
		j.pending, j.block = j.block, chunk{} // most blocks are alone: no copy
		return
	}
	j.pending.add(j.block)
	j.block = chunk{data: j.block.data[:0], blobs: j.block.blobs[:0]}
	if cap(j.block.data) > 1<<20 {
		j.block = chunk{} // else one large prompt would keep its room for good
	}
}

// sync returns when all that is committed now is on the disk.
func (j *journal) sync() error { return j.syncTo(j.end()) }

// end is how much was ever committed, in bytes.
func (j *journal) end() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.committed
}

// syncTo returns when so many bytes are on the disk.
func (j *journal) syncTo(target int64) (err error) {
	j.files.Lock()
	defer j.files.Unlock()
	if j.synced >= target && !j.unsure {
		return nil // which says nothing of what was committed since, and may have failed
	}
	defer func() { j.failing.Store(err != nil) }()
	if j.unsure {
		// After a failed fsync the kernel may have dropped the data and
		// call the next one a success; only a new file is certain.
		return j.startOver()
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

// take gives what is pending, and how much was committed with it.
func (j *journal) take() (chunk, int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	pending := j.pending
	j.pending = chunk{}
	return pending, j.committed
}

// flush writes what is pending. The caller holds files.
func (j *journal) flush() error {
	pending, upTo := j.take()
	if len(pending.data) == 0 {
		j.synced = upTo
		return nil
	}
	head := mark(j.size, pending.data)
	_, err := j.write(j.file, head, j.size)
	at := j.size + int64(len(head))
	if err == nil {
		_, err = j.write(j.file, pending.data, at)
	}
	if err != nil {
		// The disk is full, most likely: what was half written goes, and the
		// next sync tries again.
		j.putBack(pending)
		return errors.Join(err, j.file.Truncate(j.size))
	}
	if err := j.file.Sync(); err != nil {
		j.unsure, j.failed = true, true
		return err
	}
	for _, l := range pending.blobs {
		l.blob.moved(j.file, at+l.offset)
		if j.rewriting {
			j.tail = append(j.tail, located{l.blob, at + l.offset})
		}
	}
	j.size = at + int64(len(pending.data))
	j.synced = upTo
	return nil
}

// putBack takes up again what could not be written. More than a rewrite would
// write is not worth keeping.
func (j *journal) putBack(c chunk) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.add(j.pending)
	j.pending = c
	if len(c.data) > maxPending {
		j.pending, j.unsure, j.failed = chunk{}, true, true
	}
}

// close closes the file. What points into it can still be read.
func (j *journal) close() {
	j.files.Lock()
	defer j.files.Unlock()
	j.file.Close()
	j.folder.Close()
}
