package stream

// This file manages the memory of a line: logs that outgrow their limits go to disk
// or are shortened.

// add makes a frame of m and keeps it in the log of q. end marks the messages that
// close a sequence.
func (l *line) add(q *sequence, m Message, end bool) *frame {
	if m.Kind > Note {
		m.Kind = Other
	}
	if m.Kind == Executing {
		q.node = m.Node
	}
	q.count++
	f := &frame{
		kind: m.Kind, n: q.count, final: end, prompt: q.prompt, node: m.Node, binary: m.Binary,
		data: m.Data, size: int64(len(m.Data)),
		vital: m.Kind == Other && (end || len(q.log.frames) == 0),
	}
	if f.node == "" && m.Binary {
		f.node = q.node
	}
	if f.kind == Result && q.log.detail != last && l.results+f.size > l.limits.spill {
		l.toDisk(q, f)
	}
	l.account(q, func() { q.log.add(f) })
	return f
}

// toDisk moves the bytes of a result to the file of its sequence. If that fails,
// they stay in memory and count against its limit.
func (l *line) toDisk(q *sequence, f *frame) {
	if l.limits.ledger.full(f.size) {
		return // it stays in memory and counts against that limit
	}
	if q.log.spill == nil {
		file, err := newSpillFile(l.limits.spillDir, l.limits.ledger)
		if err != nil {
			l.spillErr = err
			return
		}
		q.log.spill = file
	}
	at, err := q.log.spill.write(f.data)
	if err != nil {
		l.spillErr = err
		return
	}
	f.file, f.at, f.data = q.log.spill, at, nil
}

// fit shrinks the line until it is within its memory limit, which is small while
// its tenant keeps too much. It first drops what the client has probably seen, then
// reduces the detail of the largest log.
func (l *line) fit() {
	for l.memory > l.limits.hold || l.memory > smallLine && l.limits.ledger.pressed() {
		l.cuts++
		if l.out != nil && len(l.sent) > 0 {
			if !l.forwarding {
				l.unheld = append(l.unheld, l.sent[0].job)
			}
			l.free(l.sent[0])
			l.sent = l.sent[1:]
			continue
		}
		if q := l.largest(whole); q != nil {
			l.shorten(q, short)
			continue
		}
		if q := l.largest(short); q != nil {
			l.shorten(q, last)
			continue
		}
		if len(l.waiting) == 0 {
			return // only a few messages of each running prompt are left
		}
		l.free(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}

// largest returns the sequence of the given detail that uses the most memory.
func (l *line) largest(d detail) (found *sequence) {
	for _, list := range [][]*sequence{l.running, l.waiting, l.sent} {
		for _, q := range list {
			if q.log.detail == d && (found == nil || q.log.memory > found.log.memory) {
				found = q
			}
		}
	}
	return found
}

func (l *line) shorten(q *sequence, to detail) { l.account(q, func() { q.log.shorten(to) }) }

func (l *line) free(q *sequence) { l.account(q, q.log.free) }

// account updates the line's totals for a change to the log of q.
func (l *line) account(q *sequence, change func()) {
	before := l.memory
	l.memory -= q.log.memory
	l.results -= q.log.results
	change()
	l.memory += q.log.memory
	l.results += q.log.results
	l.limits.ledger.keep(l.memory - before)
}
