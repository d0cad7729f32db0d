package pyjson

import "bytes"

// Meter tells what a JSON text would cost before it is parsed: how many values
// [Parse] can find in it and how deep they lie. It is written to as the text
// arrives, so that a text that costs too much can be refused before the memory
// is taken. The zero Meter is ready to use.
type Meter struct {
	seen    bool // anything but blanks
	commas  int
	opened  int
	depth   int
	deepest int
	text    bool // inside a string
	escaped bool // after a backslash in one
}

// Write counts the next part of a text. It never fails.
func (m *Meter) Write(p []byte) (int, error) {
	quote := -1 // where the next quotation mark is; none is len(p)
	for i := 0; i < len(p); {
		switch {
		case m.escaped:
			m.escaped = false
			i++
		case m.text:
			if quote < i {
				quote = len(p)
				if n := bytes.IndexByte(p[i:], '"'); n >= 0 {
					quote = i + n
				}
			}
			if n := bytes.IndexByte(p[i:quote], '\\'); n >= 0 {
				m.escaped = true
				i += n + 1
				continue
			}
			m.text = quote == len(p)
			i = quote + 1
		default:
			m.structure(p[i])
			i++
		}
	}
	return len(p), nil
}

// structure counts a byte outside of strings.
func (m *Meter) structure(c byte) {
	switch c {
	case ' ', '\t', '\n', '\r':
		return
	case '"':
		m.text = true
	case ',':
		m.commas++
	case '{', '[':
		m.opened++
		m.depth++
		m.deepest = max(m.deepest, m.depth)
	case '}', ']':
		m.depth--
	}
	m.seen = true
}

// Values is at least the number of values that [Parse] makes of the text, up to
// the place where it would give up, and at most about twice that number: every
// value but the first follows a comma or the opening of an array or object.
func (m *Meter) Values() int {
	if !m.seen {
		return 0
	}
	return 1 + m.commas + m.opened
}

// Depth is the deepest nesting of arrays and objects.
func (m *Meter) Depth() int { return m.deepest }
