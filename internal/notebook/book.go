package notebook

import (
	"bufio"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// maxNote bounds one note, in bytes. A larger one is not kept.
	maxNote = 512 << 20
	// maxUnwritten bounds the notes that wait for the disk, in bytes.
	maxUnwritten = 32 << 20
)

// Options of a Book.
type Options struct {
	// Dir is made if it is missing, also later. Nobody else may have files there.
	Dir string
	// Life is how long notes are kept at least while more are made. After that they go in bulk.
	Life time.Duration
	// Bytes bounds them: beyond it, the oldest go. One note more fits in.
	Bytes  int64
	Logger *slog.Logger
}

// Book has the notes of one process. It is safe for concurrent use. A nil Book takes notes and
// forgets them.
type Book struct {
	o     Options
	pages *pages // used by one goroutine at a time

	mu        sync.Mutex
	unwritten []Note
	bytes     int64 // of what is unwritten
	writing   bool
	closed    bool
	lost      int
	trouble   retry.Trouble
	work      sync.WaitGroup
}

// Open calls read with the notes of the processes before, the oldest first, and returns a book for
// more. What they have written badly is skipped. So is what the disk does not give, with a warning:
// notes are for the case that Redis fails as well.
func Open(o Options, read func(Note)) *Book {
	p, err := openPages(o, read)
	if err != nil {
		o.Logger.Warn("cannot read what was noted before this start", "error", err)
	}
	return &Book{o: o, pages: p}
}

// Add notes something. It does not wait for the disk. The parts must not be changed any more.
func (b *Book) Add(parts ...[]byte) {
	if b == nil {
		return
	}
	n := Note{At: time.Now(), Parts: parts}
	size := n.size()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if size > maxNote || b.bytes+size > maxUnwritten && b.bytes > 0 {
		b.miss(1, nil)
		return
	}
	b.unwritten = append(b.unwritten, n)
	b.bytes += size
	if !b.writing {
		b.writing = true
		b.work.Go(b.write)
	}
}

// write writes what is unwritten until there is nothing left.
func (b *Book) write() {
	for {
		b.mu.Lock()
		notes := b.unwritten
		b.unwritten, b.bytes = nil, 0
		b.writing = len(notes) > 0
		b.mu.Unlock()
		if len(notes) == 0 {
			return
		}
		if err := b.pages.add(notes); err != nil {
			b.mu.Lock()
			b.miss(len(notes), err)
			b.mu.Unlock()
		}
	}
}

// miss counts notes that were lost, and says so from time to time. The caller holds the lock.
func (b *Book) miss(n int, err error) {
	b.lost += n
	if b.trouble.IsNews(nil) {
		b.o.Logger.Warn("cannot note for the next start what Redis has confirmed", "lost", b.lost, "error", err)
		b.lost = 0
	}
}

// Close writes what is unwritten. Anything added later is forgotten.
func (b *Book) Close() {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.work.Wait()
	b.pages.close()
}

// writeAll writes notes to a file.
func writeAll(f *os.File, notes []Note) error {
	w := bufio.NewWriterSize(f, 64<<10)
	for _, n := range notes {
		if err := n.write(w); err != nil {
			return err
		}
	}
	return w.Flush()
}
