package pyjson

import (
	"bytes"
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

const (
	// longText is the size, in bytes, from which a decoded string is not copied.
	// Shorter ones are, so that a string that is kept does not keep all of a
	// large input.
	longText = 64 << 10
	// copyStep is copied at once. A copy cannot be interrupted, and the
	// collector makes all of the program wait until it can interrupt everybody.
	copyStep = 256 << 10
)

// text reads a string literal; the current byte is its opening quote.
func (p *parser) text() (string, error) {
	p.at++
	start := p.at
	for p.at < len(p.data) {
		p.pause()
		switch c := p.data[p.at]; {
		case c == '"':
			s := stringOf(p.data[start:p.at])
			p.at++
			return s, nil
		case c == '\\':
			return p.escapedText(start)
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

// stringOf makes a string of bytes that never change. Prompts carry pictures as
// strings of megabytes; a copy of each would double the memory that they take.
func stringOf(text []byte) string {
	if len(text) < longText {
		return string(text)
	}
	return unsafe.String(unsafe.SliceData(text), len(text)) //nolint:gosec // text never changes, as Parse demands
}

// plain steps over ASCII that stands for itself. Prompts carry pictures in
// strings of megabytes, so it takes many bytes at a time where it can. It stops
// where it is time to rest.
func (p *parser) plain() {
	word := binary.LittleEndian.Uint64
	end := min(max(p.due, p.at+1), len(p.data))
	rest := p.data[p.at:end]
	for len(rest) >= 32 && special(word(rest))|special(word(rest[8:]))|special(word(rest[16:]))|special(word(rest[24:])) == 0 {
		rest = rest[32:]
	}
	for len(rest) >= 8 && special(word(rest)) == 0 {
		rest = rest[8:]
	}
	for len(rest) > 0 && rest[0] != '"' && rest[0] != '\\' && rest[0] >= 0x20 && rest[0] < utf8.RuneSelf {
		rest = rest[1:]
	}
	p.at = end - len(rest)
}

// special is 0 if none of eight bytes ends a run of plain ASCII: a byte less
// than n borrows from its top bit when n is taken from it, and one that equals
// c is less than 1 once c is taken out by exclusive or.
func special(x uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, slash := x^'"'*ones, x^'\\'*ones
	control := (x - 0x20*ones) &^ x
	return (x | control | (quote-ones)&^quote | (slash-ones)&^slash) & tops
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

// escapedText goes on with a string that began at start from its first
// backslash.
func (p *parser) escapedText(start int) (string, error) {
	// Decoded text is never longer than its literal. A buffer that grows would
	// leave several times as much behind.
	buf := appendText(make([]byte, 0, closingQuote(p.data, p.at)-start), p.data[start:p.at])
	for p.at < len(p.data) {
		p.pause()
		switch c := p.data[p.at]; {
		case c == '"':
			p.at++
			return stringOf(buf), nil
		case c == '\\':
			var err error
			if buf, err = p.escape(buf); err != nil {
				return "", err
			}
		case c < 0x20:
			return "", p.fail("invalid control character")
		default:
			from := p.at
			if c < utf8.RuneSelf {
				p.plain()
			} else if err := p.rune(); err != nil {
				return "", err
			}
			buf = appendText(buf, p.data[from:p.at])
		}
	}
	return "", p.fail("unterminated string")
}

// closingQuote is the offset of the quote that ends the string that data[at] is
// in, or len(data) if none does.
func closingQuote(data []byte, at int) int {
	end := -1 // the next quote, escaped or not
	for at < len(data) {
		if end < at {
			n := bytes.IndexByte(data[at:], '"')
			if n < 0 {
				break
			}
			end = at + n
		}
		slash := bytes.IndexByte(data[at:end], '\\')
		if slash < 0 {
			return end
		}
		at += slash + 2
	}
	return len(data)
}

// appendText is append in steps.
func appendText(dst, text []byte) []byte {
	for len(text) > copyStep {
		dst = append(dst, text[:copyStep]...)
		text = text[copyStep:]
	}
	return append(dst, text...)
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
