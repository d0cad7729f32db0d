package redis

import (
	"io"
	"os"
)

// Rewrite rewrites the journal, which otherwise happens when it has grown.
func (db *DB) Rewrite() error {
	j := db.embedded.journal
	j.files.Lock()
	defer j.files.Unlock()
	return j.rewrite()
}

// SyncJournal does what housekeeping does every second.
func (db *DB) SyncJournal() error { return db.embedded.journal.sync() }

// BreakJournal gives the journal a file that takes no writes and gives back
// how to repair it.
func (db *DB) BreakJournal(readOnly *os.File) (repair func()) {
	j := db.embedded.journal
	swap := func(f *os.File) *os.File {
		j.files.Lock()
		defer j.files.Unlock()
		old := j.file
		j.file = f
		return old
	}
	good := swap(readOnly)
	return func() { swap(good) }
}

// DoubtJournal makes the journal believe that a sync has failed.
func (db *DB) DoubtJournal() {
	j := db.embedded.journal
	j.files.Lock()
	defer j.files.Unlock()
	j.unsure = true
}

// Expire lets keys expire as housekeeping does.
func (db *DB) Expire() { db.embedded.expire() }

// Abandon ends the embedded server without another write, as a crash does.
func (db *DB) Abandon() {
	db.closing.Do(func() {
		db.hangUp()
		_ = db.client.Close()
		_ = db.pubsub.Close()
		db.embedded.stop()
		db.embedded.done.Wait()
		db.embedded.abandon()
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
