package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// letter is what one hub sends to another about one client.
type letter struct {
	kind letterKind
	from string
	k    Key
	// home is the number of the client's home that the letter speaks of.
	home int64
	// session and number are the place of letterEvents among those of one
	// courier: sessions of a hub grow, numbers count from 0 in each.
	session uint64
	number  uint64
	events  []event  // in letterEvents
	ids     []uint64 // in letterReceipt
}

type letterKind uint8

const (
	// letterEvents brings what happens in the runs of the sender.
	letterEvents letterKind = iota + 1
	// letterAgain asks for everything anew, because of a gap in a session.
	letterAgain
	// letterReceipt tells which runs the client has received whole.
	letterReceipt
	// letterFetched tells the client's home that the client has fetched the
	// results of prompts; their ids are the jobs of one eventSynced.
	letterFetched
	// letterMessage brings messages that belong to no run.
	letterMessage
)

// event is one thing that happened in a run of another hub.
type event struct {
	kind eventKind
	id   uint64 // of the run, unique at the sender
	// floor, in eventSynced and eventBeat: the sender knows no run below it.
	floor uint64
	// jobs, in eventSynced: the client has received these of late, at the
	// sender.
	jobs []string

	// In eventBegin.
	prompt, job string
	fence, at   int64

	// In eventFrame; ref stands for data that was deposited.
	n       uint64
	message Message
	final   bool
	ref     string

	// told, in eventEnd: a socket of the sender has written the end.
	told bool
}

type eventKind uint8

const (
	// eventBegin comes before all else of a run in a session.
	eventBegin eventKind = iota + 1
	// eventFrame brings a message.
	eventFrame
	// eventEnd: the run has ended, all its messages went before.
	eventEnd
	// eventLost: the run was lost.
	eventLost
	// eventSynced: all that the sender knows of the client went before, so
	// that what was not named in this session is over.
	eventSynced
	// eventBeat: nothing happened; the number shows whether letters are missing.
	eventBeat
)

// letterVersion begins each letter. A hub that does not know a version does
// not read it, and the end of a run reaches its client by the queue.
//
// The encoding is our own, and stays: hubs of two versions share a Redis during an
// upgrade, and in another encoding their clients would miss progress and previews.
// CBOR would have to be read by one version and be written by the next, beside
// this one; JSON would also make a third more of each preview.
const letterVersion = 1

// errLetter says that a letter cannot be read.
var errLetter = errors.New("stream: letter cannot be read")

// appendTo encodes the letter.
func (l *letter) appendTo(b []byte) []byte {
	b = append(b, letterVersion, byte(l.kind))
	b = appendText(b, l.from)
	b = appendText(b, l.k.Tenant)
	b = appendText(b, l.k.Client)
	b = binary.AppendVarint(b, l.home)
	b = binary.AppendUvarint(b, l.session)
	b = binary.AppendUvarint(b, l.number)
	b = binary.AppendUvarint(b, uint64(len(l.ids)))
	for _, id := range l.ids {
		b = binary.AppendUvarint(b, id)
	}
	for i := range l.events {
		// Each with its length, so that a reader can skip kinds that it does
		// not know.
		body := l.events[i].appendTo(nil)
		b = binary.AppendUvarint(b, uint64(len(body)))
		b = append(b, body...)
	}
	return b
}

func (e *event) appendTo(b []byte) []byte {
	b = append(b, byte(e.kind))
	b = binary.AppendUvarint(b, e.id)
	switch e.kind {
	case eventBegin:
		b = appendText(b, e.prompt)
		b = appendText(b, e.job)
		b = binary.AppendVarint(b, e.fence)
		b = binary.AppendVarint(b, e.at)
	case eventFrame:
		b = binary.AppendUvarint(b, e.n)
		b = append(b, byte(e.message.Kind), flagsOf(e.message.Binary, e.final))
		b = appendText(b, e.message.Node)
		b = appendText(b, e.ref)
		b = append(b, e.message.Data...)
	case eventSynced:
		b = binary.AppendUvarint(b, e.floor)
		b = binary.AppendUvarint(b, uint64(len(e.jobs)))
		for _, job := range e.jobs {
			b = appendText(b, job)
		}
	case eventBeat:
		b = binary.AppendUvarint(b, e.floor)
	case eventEnd:
		if e.told { // left out otherwise: older hubs do not know it
			b = append(b, 1)
		}
	case eventLost: // the id says it all
	}
	return b
}

func flagsOf(isBinary, final bool) (flags byte) {
	if isBinary {
		flags |= 1
	}
	if final {
		flags |= 2
	}
	return flags
}

// readLetter decodes a letter; events of unknown kinds are left out. The
// messages share the bytes of b.
func readLetter(b []byte) (letter, error) {
	r := letterReader{b: b}
	if version := r.byte(); version != letterVersion {
		return letter{}, fmt.Errorf("%w: version %d", errLetter, version)
	}
	l := letter{
		kind: letterKind(r.byte()),
		from: r.text(), k: Key{Tenant: r.text(), Client: r.text()},
		home: r.varint(), session: r.uvarint(), number: r.uvarint(),
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		l.ids = append(l.ids, r.uvarint())
	}
	for len(r.b) > 0 && !r.bad {
		body := letterReader{b: r.bytes(r.uvarint())}
		if e, known := body.event(); known {
			l.events = append(l.events, e)
		}
		r.bad = r.bad || body.bad
	}
	if r.bad {
		return letter{}, errLetter
	}
	return l, nil
}

func (r *letterReader) event() (e event, known bool) {
	e = event{kind: eventKind(r.byte()), id: r.uvarint()}
	switch e.kind {
	case eventBegin:
		e.prompt, e.job, e.fence, e.at = r.text(), r.text(), r.varint(), r.varint()
	case eventFrame:
		e.n = r.uvarint()
		e.message.Kind = Kind(r.byte())
		flags := r.byte()
		e.message.Binary, e.final = flags&1 != 0, flags&2 != 0
		e.message.Node, e.ref = r.text(), r.text()
		e.message.Data = r.b
	case eventSynced:
		e.floor = r.uvarint()
		for n := r.uvarint(); n > 0 && !r.bad; n-- {
			e.jobs = append(e.jobs, r.text())
		}
	case eventBeat:
		e.floor = r.uvarint()
	case eventEnd:
		e.told = len(r.b) > 0 && r.byte() != 0
	case eventLost:
	default:
		return e, false
	}
	return e, true
}

// letterReader takes a letter apart; after the first fault it gives zeros.
type letterReader struct {
	b   []byte
	bad bool
}

func (r *letterReader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *letterReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	return v * uint64(r.skip(n))
}

func (r *letterReader) varint() int64 {
	v, n := binary.Varint(r.b)
	return v * int64(r.skip(n))
}

// skip takes n bytes away and gives 1, or 0 when a number could not be read.
func (r *letterReader) skip(n int) int {
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return 1
}

func (r *letterReader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *letterReader) text() string { return string(r.bytes(r.uvarint())) }

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
