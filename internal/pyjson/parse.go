package pyjson

import (
	"encoding/binary"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
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
// refers to data ([Object.Raw]), which must not change afterwards.
func Parse(data []byte) (Value, error) {
	p := &parser{data: data}
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
}

func (p *parser) fail(reason string) error { return &SyntaxError{Offset: p.at, Reason: reason} }

func (p *parser) blanks() {
	for p.at < len(p.data) {
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
	return Number(p.data[start:p.at]), nil
}

// text reads a string literal; the current byte is its opening quote.
func (p *parser) text() (string, error) {
	p.at++
	start := p.at
	for p.at < len(p.data) {
		switch c := p.data[p.at]; {
		case c == '"':
			s := string(p.data[start:p.at])
			p.at++
			return s, nil
		case c == '\\':
			return p.escapedText(append([]byte(nil), p.data[start:p.at]...))
		case c < 0x20:
			return "", p.fail("invalid control character")
		case c < utf8.RuneSelf:
			p.plain()
		default:
			if err := p.rune(); err != nil {
				return "", err
			}
		}
	}
	return "", p.fail("unterminated string")
}

// plain steps over ASCII that stands for itself. Prompts carry pictures in
// strings of megabytes, so it takes eight bytes at a time where it can.
func (p *parser) plain() {
	for len(p.data)-p.at >= 8 && allPlain(binary.LittleEndian.Uint64(p.data[p.at:])) {
		p.at += 8
	}
	rest := p.data[p.at:]
	for n, c := range rest {
		if c == '"' || c == '\\' || c < 0x20 || c >= utf8.RuneSelf {
			p.at += n
			return
		}
	}
	p.at += len(rest)
}

// allPlain reports whether none of eight bytes ends a run of plain ASCII: a
// byte less than n borrows from its top bit when n is taken from it, and one
// that equals c is less than 1 once c is taken out by exclusive or.
func allPlain(x uint64) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, slash := x^'"'*ones, x^'\\'*ones
	control := (x - 0x20*ones) &^ x
	return (x|control|(quote-ones)&^quote|(slash-ones)&^slash)&tops == 0
}

// rune steps over one character that is not ASCII.
func (p *parser) rune() error {
	r, size := utf8.DecodeRune(p.data[p.at:])
	if r == utf8.RuneError && size == 1 {
		return p.fail("invalid UTF-8")
	}
	p.at += size
	return nil
}

// escapedText goes on with a string from its first backslash.
func (p *parser) escapedText(buf []byte) (string, error) {
	for p.at < len(p.data) {
		switch c := p.data[p.at]; {
		case c == '"':
			p.at++
			return string(buf), nil
		case c == '\\':
			var err error
			if buf, err = p.escape(buf); err != nil {
				return "", err
			}
		case c < 0x20:
			return "", p.fail("invalid control character")
		case c < utf8.RuneSelf:
			buf = append(buf, c)
			p.at++
		default:
			start := p.at
			if err := p.rune(); err != nil {
				return "", err
			}
			buf = append(buf, p.data[start:p.at]...)
		}
	}
	return "", p.fail("unterminated string")
}

func (p *parser) escape(buf []byte) ([]byte, error) {
	p.at++
	c := p.next()
	switch c {
	case '"', '\\', '/':
		buf = append(buf, c)
	case 'b':
		buf = append(buf, '\b')
	case 'f':
		buf = append(buf, '\f')
	case 'n':
		buf = append(buf, '\n')
	case 'r':
		buf = append(buf, '\r')
	case 't':
		buf = append(buf, '\t')
	case 'u':
		return p.unicodeEscape(buf)
	default:
		return nil, p.fail("invalid escape")
	}
	p.at++
	return buf, nil
}

func (p *parser) unicodeEscape(buf []byte) ([]byte, error) {
	r, ok := p.hex4(p.at + 1)
	if !ok {
		return nil, p.fail("invalid \\uXXXX escape")
	}
	p.at += 5
	if utf16.IsSurrogate(r) && p.next() == '\\' && p.at+1 < len(p.data) && p.data[p.at+1] == 'u' {
		if low, ok := p.hex4(p.at + 2); ok {
			if full := utf16.DecodeRune(r, low); full != utf8.RuneError {
				p.at += 6
				return utf8.AppendRune(buf, full), nil
			}
		}
	}
	return appendCodePoint(buf, r), nil
}

// hex4 reads four hex digits at offset.
func (p *parser) hex4(offset int) (rune, bool) {
	if offset+4 > len(p.data) {
		return 0, false
	}
	var r rune
	for _, c := range p.data[offset : offset+4] {
		switch {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// appendCodePoint is utf8.AppendRune that also encodes surrogates.
func appendCodePoint(buf []byte, r rune) []byte {
	if utf16.IsSurrogate(r) {
		return append(buf, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0xBF, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(buf, r)
}
