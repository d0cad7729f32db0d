package pyjson

import (
	"fmt"
	"math"
)

// MaxDepth is the deepest nesting of arrays and objects that [Parse] accepts.
// Python stops near 1000 with a RecursionError, the exact depth depending on
// the caller's own stack.
const MaxDepth = 980

// maxIntDigits is CPython's limit for the conversion of text to an int.
const maxIntDigits = 4300

// SyntaxError tells why [Parse] refused its input.
type SyntaxError struct {
	Offset int // bytes from the start of the input
	Reason string
}

// Error describes the fault and its place.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("json: %s at offset %d", e.Reason, e.Offset)
}

// Parse reads exactly one JSON value, as Python's json.loads does for the same
// text in UTF-8: NaN, Infinity and -Infinity are numbers, a repeated key keeps
// its first place and takes its last value, control characters inside strings
// and a byte order mark are refused. The error is a *[SyntaxError]. The result
// refers to data ([Object.Raw], and long strings), which must not change
// afterwards.
func Parse(data []byte) (Value, error) { return ParseWith(data, nil) }

// restStep is what is parsed, in bytes, from one rest to the next.
const restStep = 32 << 10

// ParseWith is [Parse] for a text that may be large: it calls rest now and then,
// about every 32 KiB, for a caller that wants to let others go first.
func ParseWith(data []byte, rest func()) (Value, error) {
	p := &parser{data: data, rest: rest, due: restStep}
	if rest == nil {
		p.due = math.MaxInt
	}
	p.blanks()
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.blanks()
	if p.at < len(data) {
		return nil, p.fail("extra data")
	}
	return v, nil
}

type parser struct {
	data []byte
	at   int
	rest func()
	due  int // the offset from which it is time to rest
}

func (p *parser) pause() {
	if p.at >= p.due {
		p.due = p.at + restStep
		p.rest()
	}
}

func (p *parser) fail(reason string) error { return &SyntaxError{Offset: p.at, Reason: reason} }

func (p *parser) blanks() {
	for ; p.at < len(p.data); p.pause() {
		switch p.data[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// next returns the byte at the current place, 0 at the end of the input.
func (p *parser) next() byte {
	if p.at < len(p.data) {
		return p.data[p.at]
	}
	return 0
}

func (p *parser) literal(word string) bool {
	if len(p.data)-p.at < len(word) || string(p.data[p.at:p.at+len(word)]) != word {
		return false
	}
	p.at += len(word)
	return true
}

func (p *parser) value(depth int) (Value, error) {
	p.pause()
	switch c := p.next(); {
	case c == '{':
		return p.object(depth + 1)
	case c == '[':
		return p.array(depth + 1)
	case c == '"':
		s, err := p.text()
		return String(s), err
	case p.literal("null"):
		return Null{}, nil
	case p.literal("true"):
		return Bool(true), nil
	case p.literal("false"):
		return Bool(false), nil
	case p.literal("NaN"):
		return Number("NaN"), nil
	case p.literal("Infinity"):
		return Number("Infinity"), nil
	case p.literal("-Infinity"):
		return Number("-Infinity"), nil
	case c == '-' || isDigit(c):
		return p.number()
	}
	return nil, p.fail("expecting value")
}

func (p *parser) object(depth int) (Value, error) {
	if depth > MaxDepth {
		return nil, p.fail("nested too deeply")
	}
	p.at++
	o := &Object{}
	p.blanks()
	if p.next() == '}' {
		p.at++
		return o, nil
	}
	for {
		if p.next() != '"' {
			return nil, p.fail("expecting property name enclosed in double quotes")
		}
		key, err := p.text()
		if err != nil {
			return nil, err
		}
		p.blanks()
		if p.next() != ':' {
			return nil, p.fail("expecting ':' delimiter")
		}
		p.at++
		p.blanks()
		start := p.at
		v, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		o.set(key, v, p.data[start:p.at:p.at])
		p.blanks()
		switch p.next() {
		case ',':
			p.at++
			p.blanks()
		case '}':
			p.at++
			return o, nil
		default:
			return nil, p.fail("expecting ',' delimiter")
		}
	}
}

func (p *parser) array(depth int) (Value, error) {
	if depth > MaxDepth {
		return nil, p.fail("nested too deeply")
	}
	p.at++
	list := Array{}
	p.blanks()
	if p.next() == ']' {
		p.at++
		return list, nil
	}
	for {
		v, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		p.blanks()
		switch p.next() {
		case ',':
			p.at++
			p.blanks()
		case ']':
			p.at++
			return list, nil
		default:
			return nil, p.fail("expecting ',' delimiter")
		}
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func (p *parser) digits() int {
	start := p.at
	for isDigit(p.next()) {
		p.at++
		p.pause()
	}
	return p.at - start
}

// number reads the longest literal that fits. Like Python's scanner it stops
// before a dangling "." or "e", which then is extra data for the caller.
func (p *parser) number() (Value, error) {
	start := p.at
	if p.next() == '-' {
		p.at++
	}
	count := 1
	switch c := p.next(); {
	case c == '0':
		p.at++
	case isDigit(c):
		count = p.digits()
	default:
		p.at = start
		return nil, p.fail("expecting value")
	}
	isInt := true
	if p.next() == '.' {
		mark := p.at
		p.at++
		if p.digits() == 0 {
			p.at = mark
		} else {
			isInt = false
		}
	}
	if c := p.next(); c == 'e' || c == 'E' {
		mark := p.at
		p.at++
		if c := p.next(); c == '+' || c == '-' {
			p.at++
		}
		if p.digits() == 0 {
			p.at = mark
		} else {
			isInt = false
		}
	}
	if isInt && count > maxIntDigits {
		return nil, p.fail("integer has too many digits")
	}
	return Number(stringOf(p.data[start:p.at])), nil
}
