package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// peerMessage is what one hub sends to another about one client.
type peerMessage struct {
	kind peerMessageKind
	from string
	k    Key
	// owner is the number of the ownership that the message refers to.
	owner int64
	// session and number order the peerEvents of one forwarder. The sessions of a
	// hub grow; numbers count from 0 in each session.
	session uint64
	number  uint64
	events  []runEvent // for peerEvents
	ids     []uint64   // for peerReceipt
}

type peerMessageKind uint8

const (
	// peerEvents carries what happens in the sender's runs.
	peerEvents peerMessageKind = iota + 1
	// peerResend asks for everything again, because of a gap in a session.
	peerResend
	// peerReceipt lists the runs that the client has received completely.
	peerReceipt
	// peerFetched tells the client's owner that the client has fetched the results
	// of prompts. Their ids are the jobs of one runSynced.
	peerFetched
	// peerClientMessages carries messages that belong to no run.
	peerClientMessages
)

// runEvent is one event of a run of another hub.
type runEvent struct {
	kind runEventKind
	id   uint64 // of the run, unique at the sender
	// floor, for runSynced and runHeartbeat: the sender has no run with a lower id.
	floor uint64
	// jobs, for runSynced: the jobs that the client has recently received from the
	// sender.
	jobs []string

	// For runBegin.
	prompt, job string
	fence, at   int64

	// For runFrame; ref refers to a blob that holds the data.
	n       uint64
	message Message
	final   bool
	ref     string

	// told, for runEnd: a socket of the sender has written the end.
	told bool
}

type runEventKind uint8

const (
	// runBegin comes before all other events of a run in a session.
	runBegin runEventKind = iota + 1
	// runFrame carries a message.
	runFrame
	// runEnd: the run has ended; all its messages were sent before.
	runEnd
	// runLost: the run was lost.
	runLost
	// runSynced: everything that the sender has for the client was sent before. A
	// run that was not named in this session is over.
	runSynced
	// runHeartbeat: nothing happened. The message's number reveals whether earlier
	// ones are missing.
	runHeartbeat
)

// peerMessageVersion is the first byte of each message. A hub that does not know
// the version ignores the message; the end of the run then reaches its client
// through the queue.
//
// The encoding is our own, and stays: hubs of two versions share a Redis during an
// upgrade, and with another encoding their clients would miss progress and
// previews. CBOR would have to be read by one version and written by the next, in
// addition to this one; JSON would also make each preview a third larger.
const peerMessageVersion = 1

// errPeerMessage is returned for a message that cannot be decoded.
var errPeerMessage = errors.New("stream: cannot decode a message from another hub")

// appendTo encodes the message.
func (l *peerMessage) appendTo(b []byte) []byte {
	b = append(b, peerMessageVersion, byte(l.kind))
	b = appendText(b, l.from)
	b = appendText(b, l.k.Tenant)
	b = appendText(b, l.k.Client)
	b = binary.AppendVarint(b, l.owner)
	b = binary.AppendUvarint(b, l.session)
	b = binary.AppendUvarint(b, l.number)
	b = binary.AppendUvarint(b, uint64(len(l.ids)))
	for _, id := range l.ids {
		b = binary.AppendUvarint(b, id)
	}
	for i := range l.events {
		// Each event has a length prefix, so that a reader can skip unknown kinds.
		body := l.events[i].appendTo(nil)
		b = binary.AppendUvarint(b, uint64(len(body)))
		b = append(b, body...)
	}
	return b
}

func (e *runEvent) appendTo(b []byte) []byte {
	b = append(b, byte(e.kind))
	b = binary.AppendUvarint(b, e.id)
	switch e.kind {
	case runBegin:
		b = appendText(b, e.prompt)
		b = appendText(b, e.job)
		b = binary.AppendVarint(b, e.fence)
		b = binary.AppendVarint(b, e.at)
	case runFrame:
		b = binary.AppendUvarint(b, e.n)
		b = append(b, byte(e.message.Kind), flagsOf(e.message.Binary, e.final))
		b = appendText(b, e.message.Node)
		b = appendText(b, e.ref)
		b = append(b, e.message.Data...)
	case runSynced:
		b = binary.AppendUvarint(b, e.floor)
		b = binary.AppendUvarint(b, uint64(len(e.jobs)))
		for _, job := range e.jobs {
			b = appendText(b, job)
		}
	case runHeartbeat:
		b = binary.AppendUvarint(b, e.floor)
	case runEnd:
		if e.told { // omitted otherwise: older hubs do not know it
			b = append(b, 1)
		}
	case runLost: // the id is enough
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

// readPeerMessage decodes a message. Events of unknown kinds are skipped. The
// decoded messages share the bytes of b.
func readPeerMessage(b []byte) (peerMessage, error) {
	r := peerReader{b: b}
	if version := r.byte(); version != peerMessageVersion {
		return peerMessage{}, fmt.Errorf("%w: version %d", errPeerMessage, version)
	}
	l := peerMessage{
		kind: peerMessageKind(r.byte()),
		from: r.text(), k: Key{Tenant: r.text(), Client: r.text()},
		owner: r.varint(), session: r.uvarint(), number: r.uvarint(),
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		l.ids = append(l.ids, r.uvarint())
	}
	for len(r.b) > 0 && !r.bad {
		body := peerReader{b: r.bytes(r.uvarint())}
		if e, known := body.event(); known {
			l.events = append(l.events, e)
		}
		r.bad = r.bad || body.bad
	}
	if r.bad {
		return peerMessage{}, errPeerMessage
	}
	return l, nil
}

func (r *peerReader) event() (e runEvent, known bool) {
	e = runEvent{kind: runEventKind(r.byte()), id: r.uvarint()}
	switch e.kind {
	case runBegin:
		e.prompt, e.job, e.fence, e.at = r.text(), r.text(), r.varint(), r.varint()
	case runFrame:
		e.n = r.uvarint()
		e.message.Kind = Kind(r.byte())
		flags := r.byte()
		e.message.Binary, e.final = flags&1 != 0, flags&2 != 0
		e.message.Node, e.ref = r.text(), r.text()
		e.message.Data = r.b
	case runSynced:
		e.floor = r.uvarint()
		for n := r.uvarint(); n > 0 && !r.bad; n-- {
			e.jobs = append(e.jobs, r.text())
		}
	case runHeartbeat:
		e.floor = r.uvarint()
	case runEnd:
		e.told = len(r.b) > 0 && r.byte() != 0
	case runLost:
	default:
		return e, false
	}
	return e, true
}

// peerReader decodes a message; after the first error it returns zeros.
type peerReader struct {
	b   []byte
	bad bool
}

func (r *peerReader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *peerReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	return v * uint64(r.skip(n))
}

func (r *peerReader) varint() int64 {
	v, n := binary.Varint(r.b)
	return v * int64(r.skip(n))
}

// skip advances by n bytes and returns 1, or 0 if n is not positive because a
// number could not be decoded.
func (r *peerReader) skip(n int) int {
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return 1
}

func (r *peerReader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *peerReader) text() string { return string(r.bytes(r.uvarint())) }

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
