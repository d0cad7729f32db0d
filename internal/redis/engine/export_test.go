package engine

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// Rewrite rewrites the journal, as it happens by itself when it has grown.
func (e *Engine) Rewrite() error { return e.journal.rewrite(e.stop) }

// FillDisk makes the disk take n bytes of each block from now on, until repair is called.
func (e *Engine) FillDisk(n int) (repair func()) {
	j := e.journal
	swap := func(write func(*os.File, []byte, int64) (int, error)) {
		j.files.Lock()
		defer j.files.Unlock()
		j.write = write
	}
	swap(func(f *os.File, p []byte, offset int64) (int, error) {
		if len(p) <= n {
			return f.WriteAt(p, offset)
		}
		written, err := f.WriteAt(p[:n], offset)
		return written, errors.Join(err, syscall.ENOSPC)
	})
	return func() { swap((*os.File).WriteAt) }
}

// SyncLate does a sync that was called now and gets the file only when done is called.
func (e *Engine) SyncLate() (done func() error) {
	target := e.journal.end()
	return func() error { return e.journal.syncTo(target) }
}

// DoubtJournal makes the journal believe that a sync has failed.
func (e *Engine) DoubtJournal() {
	e.journal.files.Lock()
	defer e.journal.files.Unlock()
	e.journal.unsure = true
}

// Expire lets keys expire as maintenance does.
func (e *Engine) Expire() { e.expire() }

// Abandon ends the engine without another write, as a crash does.
func (e *Engine) Abandon() {
	e.once.Do(func() {
		close(e.stop)
		e.done.Wait()
		e.abandon()
	})
}

// ReadCommands reads commands and gives how many whole bytes there were.
func ReadCommands(r io.Reader) (commands [][]string, whole int64, err error) {
	c := newCommandReader(r)
	for {
		args, err := c.next()
		if err != nil {
			return commands, whole, err
		}
		commands, whole = append(commands, args), c.offset
	}
}

// AppendCommand writes a command.
func AppendCommand(dst []byte, args ...string) []byte { return appendCommand(dst, args...) }

// Errors of ReadCommands.
var (
	ErrTorn    = errTorn
	ErrDamaged = errDamaged
)

// Pipe is the connection inside the process.
var Pipe = pipe

// InMemory is how many bytes of large values are in memory.
func (e *Engine) InMemory() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	add := func(d datum) {
		if d.blob != nil {
			n += len(d.blob.at.Load().text)
		}
	}
	e.keys.keys.Scan(func(_ string, v *value) bool {
		add(v.text)
		if v.kind == kindHash {
			v.hash.Scan(func(_ string, d datum) bool { add(d); return true })
		}
		return true
	})
	return n
}
