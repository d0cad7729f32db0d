package stream

// buffer counts what is kept of a client's sequences: every byte once, in memory or on disk. Results
// that outgrow their limit go to disk.
type buffer struct {
	limits          lineLimits
	memory, results int64 // bytes kept by all logs
	spillErr        error // the last failure to write one to disk
}

// lineLimits are bounds in bytes, see [Options].
type lineLimits struct {
	hold, spill int64
	spillDir    string
	ledger      *ledger // of the tenant; nil counts nothing
}

// add makes a frame of m and keeps it in the log of q. end marks the messages that
// close a sequence.
func (b *buffer) add(q *sequence, m Message, end bool) *frame {
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
	if f.kind == Result && q.log.detail != last && b.results+f.size > b.limits.spill {
		b.toDisk(q, f)
	}
	b.account(q, func() { q.log.add(f) })
	return f
}

// toDisk moves the bytes of a result to the file of its sequence. If that fails,
// they stay in memory and count against its limit.
func (b *buffer) toDisk(q *sequence, f *frame) {
	if b.limits.ledger.full(f.size) {
		return // it stays in memory and counts against that limit
	}
	if q.log.spill == nil {
		file, err := newSpillFile(b.limits.spillDir, b.limits.ledger)
		if err != nil {
			b.spillErr = err
			return
		}
		q.log.spill = file
	}
	at, err := q.log.spill.write(f.data)
	if err != nil {
		b.spillErr = err
		return
	}
	f.file, f.at, f.data = q.log.spill, at, nil
}

func (b *buffer) shorten(q *sequence, to detail) { b.account(q, func() { q.log.shorten(to) }) }

func (b *buffer) free(q *sequence) { b.account(q, q.log.free) }

// account updates the line's totals for a change to the log of q.
func (b *buffer) account(q *sequence, change func()) {
	before := b.memory
	b.memory -= q.log.memory
	b.results -= q.log.results
	change()
	b.memory += q.log.memory
	b.results += q.log.results
	b.limits.ledger.keep(b.memory - before)
}
