package notebook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// pagesAtOnce is how many pages share the life and the bytes of a book.
const pagesAtOnce = 4

// page is one file of notes.
type page struct {
	number int
	size   int64
	// begun and last are the times of the first note and of the last.
	begun, last time.Time
}

// pages are the files of a book. Only the last one grows; the others go when they are too old, or
// too much.
type pages struct {
	o    Options
	all  []page // the oldest first
	next int    // number of the next one
	file *os.File
}

func (p *pages) path(number int) string {
	return filepath.Join(p.o.Dir, fmt.Sprintf("%012d.notes", number))
}

// openPages reads the pages that there are. The error says which it could not read; they are left to
// the next process.
func openPages(o Options, read func(Note)) (p *pages, err error) {
	p = &pages{o: o, next: 1}
	entries, err := os.ReadDir(o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		var number int
		if _, err := fmt.Sscanf(e.Name(), "%d.notes", &number); err != nil || filepath.Base(p.path(number)) != e.Name() {
			continue
		}
		p.next = max(p.next, number+1)
		data, failed := os.ReadFile(p.path(number))
		if failed != nil {
			err = failed
			continue
		}
		p.all = append(p.all, readPage(number, data, read))
	}
	slices.SortFunc(p.all, func(a, b page) int { return a.number - b.number })
	return p, err
}

// readPage reads the notes of a page, up to the first that was not written to its end.
func readPage(number int, data []byte, read func(Note)) page {
	out := page{number: number, size: int64(len(data))}
	for n, rest, ok := cut(data); ok; n, rest, ok = cut(rest) {
		if out.begun.IsZero() {
			out.begun = n.At
		}
		out.last = n.At
		read(n)
	}
	return out
}

// add writes notes to the last page, or begins another. After an error nothing more is written to
// that page, since nothing behind a torn note is read.
func (p *pages) add(notes []Note) error {
	now := time.Now()
	if err := p.turn(now); err != nil {
		return err
	}
	last := &p.all[len(p.all)-1]
	if err := writeAll(p.file, notes); err != nil {
		p.close()
		return err
	}
	for _, n := range notes {
		last.size += n.size()
	}
	last.last = now
	return nil
}

// turn begins another page if the last one is full or old, and drops those that are not needed any
// more.
func (p *pages) turn(now time.Time) error {
	if p.file != nil {
		last := p.all[len(p.all)-1]
		if last.size < p.o.Bytes/pagesAtOnce && now.Sub(last.begun) < p.o.Life/pagesAtOnce {
			return nil
		}
		p.close()
	}
	p.drop(now)
	if err := os.MkdirAll(p.o.Dir, 0o700); err != nil {
		return err
	}
	for {
		file, err := os.OpenFile(p.path(p.next), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		p.next++
		if err == nil { // else it is another process's
			p.file = file
			break
		}
	}
	p.all = append(p.all, page{number: p.next - 1, begun: now, last: now})
	return nil
}

// drop deletes the pages that are too old, and the oldest of those that are too much.
func (p *pages) drop(now time.Time) {
	var bytes int64
	for _, page := range p.all {
		bytes += page.size
	}
	p.all = slices.DeleteFunc(p.all, func(page page) bool {
		if now.Sub(page.last) <= p.o.Life && bytes <= p.o.Bytes-p.o.Bytes/pagesAtOnce {
			return false
		}
		bytes -= page.size
		err := os.Remove(p.path(page.number))
		return err == nil || os.IsNotExist(err)
	})
}

// close ends the last page.
func (p *pages) close() {
	if p.file != nil {
		_ = p.file.Close() // nothing is synced
		p.file = nil
	}
}
