package queue

import (
	"fmt"
	"strings"

	"github.com/comfyhub/comfyhub/internal/notebook"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// parts are what a note has beside the record of a job. They are noted once, because they are large
// and never change.
type parts struct{ body, end bool }

// What a note says of a job.
const (
	noteHeld      = "h"
	noteDelivered = "d"
	noteGone      = "g"
	noteBody      = "b"
	noteEnd       = "e"
	// noteForgotten says that the job must not be put back.
	noteForgotten = "x"
)

// The parts of a note. Those of a body and those of an end follow, in this order.
const (
	noteKey = iota
	noteServer
	noteSays
	noteRecord
	noteParts
)

// recall begins with the copies that the process before has noted.
func (q *store) recall() {
	q.copies = newCopies()
	if q.o.Notes == "" {
		return
	}
	o := notebook.Options{Dir: q.o.Notes, Life: copyLife, Bytes: 2 * copyBytes, Logger: q.log}
	q.copies.notes.book = notebook.Open(o, q.copies.recall)
	q.heal.seen = q.copies.notes.server
}

// Close writes what the next process needs to know. The queue must not be used any more.
func (q *store) Close() {
	if q.copies != nil {
		q.copies.notes.book.Close()
	}
}

// notes are what the next process is to know of the copies.
type notes struct {
	// book is nil if there is to be no next process.
	book *notebook.Book
	// server is the incarnation of Redis to which all that is lost was last given back.
	server string
}

// add notes a copy. The caller holds the lock of the copies.
func (n *notes) add(j *copied, also parts) {
	if n.book == nil {
		return
	}
	var says strings.Builder
	for _, s := range []struct {
		so   bool
		what string
	}{{j.held || j.former, noteHeld}, {j.delivered, noteDelivered}, {j.gone, noteGone}, {also.body, noteBody}, {also.end, noteEnd}} {
		if s.so {
			says.WriteString(s.what)
		}
	}
	fields := make([]string, 0, 2*len(j.record))
	for name, value := range j.record {
		fields = append(fields, name, value)
	}
	note := [][]byte{[]byte(j.key), []byte(n.server), []byte(says.String()), []byte(redis.Pack(fields...))}
	if also.body {
		note = append(note, j.stored, j.sealed, []byte(j.requires))
	}
	if also.end {
		uses := make([]string, len(j.end.uses))
		for i, use := range j.end.uses {
			uses[i] = fmt.Sprint(use)
		}
		note = append(note, []byte(j.end.state), []byte(j.end.reason), j.end.entry, j.end.summary, []byte(redis.Pack(uses...)))
	}
	n.book.Add(note...)
}

// forget notes that a job must not be put back. The caller holds the lock of the copies.
func (n *notes) forget(key string) {
	n.book.Add([]byte(key), []byte(n.server), []byte(noteForgotten), nil)
}

// gaveBack notes that an incarnation of Redis has all that is known here.
func (c *copies) gaveBack(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes.server = server
}

// recall takes over what the process before has noted. Notes that it cannot read it skips: they may
// be those of another version.
func (c *copies) recall(n notebook.Note) {
	if len(n.Parts) < noteParts {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key, says := string(n.Parts[noteKey]), string(n.Parts[noteSays])
	fields, ok := redis.Unpack(string(n.Parts[noteRecord]))
	if !ok || key == "" {
		return
	}
	if server := string(n.Parts[noteServer]); server != "" {
		c.notes.server = server
	}
	if strings.Contains(says, noteForgotten) {
		if j := c.jobs[key]; j != nil {
			c.drop(j)
		}
		return
	}
	c.put(key, n.At, func(j *copied) {
		j.record = replied(fields)
		j.former, j.delivered, j.gone = strings.Contains(says, noteHeld), strings.Contains(says, noteDelivered), strings.Contains(says, noteGone)
		rest := n.Parts[noteParts:]
		if strings.Contains(says, noteBody) && len(rest) >= 3 {
			j.stored, j.sealed, j.requires, rest = rest[0], rest[1], string(rest[2]), rest[3:]
		}
		if strings.Contains(says, noteEnd) && len(rest) >= 5 {
			j.end = recallEnd(rest)
		}
	})
}

// recallEnd reads the parts of an end.
func recallEnd(parts [][]byte) *end {
	e := &end{state: string(parts[0]), reason: string(parts[1]), entry: parts[2], summary: parts[3]}
	uses, _ := redis.Unpack(string(parts[4]))
	for _, use := range uses {
		e.uses = append(e.uses, use)
	}
	return e
}
