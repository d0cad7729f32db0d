package pyjson

import "bytes"

// Span is a part of some text: data[From:To].
type Span struct{ From, To int }

// Of returns that part of data, which it shares.
func (s Span) Of(data []byte) []byte { return data[s.From:s.To:s.To] }

// Scanner walks over JSON text in place, without building a tree: a hub looks
// at a few members of each of thousands of messages a second. It is tolerant
// to everything Python writes (NaN, Infinity) and checks no more than it needs
// to find its way; its methods report false where that way ends. Who uses a
// scalar parses it.
type Scanner struct {
	// Data is the text.
	Data []byte
	// At is the offset in Data of what comes next.
	At int
}

func (s *Scanner) blanks() {
	for s.At < len(s.Data) {
		switch s.Data[s.At] {
		case ' ', '\t', '\n', '\r':
			s.At++
		default:
			return
		}
	}
}

// Peek returns the first byte of the next token, 0 at the end.
func (s *Scanner) Peek() byte {
	s.blanks()
	if s.At < len(s.Data) {
		return s.Data[s.At]
	}
	return 0
}

// End reports whether nothing but blanks is left.
func (s *Scanner) End() bool { return s.Peek() == 0 && s.At >= len(s.Data) }

// Text steps over a string and returns its place, quotes included.
func (s *Scanner) Text() (Span, bool) {
	if s.Peek() != '"' {
		return Span{}, false
	}
	start := s.At
	s.At = closingQuote(s.Data, start+1)
	if s.At == len(s.Data) {
		return Span{}, false
	}
	s.At++
	return Span{start, s.At}, true
}

// Value steps over any value and returns its place.
func (s *Scanner) Value() (Span, bool) {
	switch s.Peek() {
	case '"':
		return s.Text()
	case '{', '[':
		return s.nested()
	}
	start := s.At
	for s.At < len(s.Data) && !isDelimiter(s.Data[s.At]) {
		s.At++
	}
	return Span{start, s.At}, s.At > start
}

// nested steps over an object or array by counting brackets.
func (s *Scanner) nested() (Span, bool) {
	start, depth := s.At, 0
	for s.At < len(s.Data) {
		switch s.Data[s.At] {
		case '"':
			if _, ok := s.Text(); !ok {
				return Span{}, false
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.At++
				return Span{start, s.At}, true
			}
		}
		s.At++
	}
	return Span{}, false
}

func isDelimiter(c byte) bool {
	switch c {
	case ',', ':', '{', '}', '[', ']', '"', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// Object walks over an object. member is called with the scanner at each value
// and must step over it; false stops the walk.
func (s *Scanner) Object(member func(key string) bool) bool {
	if s.Peek() != '{' {
		return false
	}
	s.At++
	if s.Peek() == '}' {
		s.At++
		return true
	}
	for {
		key, ok := s.Text()
		if !ok || s.Peek() != ':' {
			return false
		}
		s.At++
		if !member(Unquote(key.Of(s.Data))) {
			return false
		}
		if done, ok := s.next('}'); done || !ok {
			return ok
		}
	}
}

// Array walks over an array as Object does.
func (s *Scanner) Array(item func(i int) bool) bool {
	if s.Peek() != '[' {
		return false
	}
	s.At++
	if s.Peek() == ']' {
		s.At++
		return true
	}
	for i := 0; ; i++ {
		if !item(i) {
			return false
		}
		if done, ok := s.next(']'); done || !ok {
			return ok
		}
	}
}

// next steps over a comma, or over the bracket that closes.
func (s *Scanner) next(closing byte) (done, ok bool) {
	switch s.Peek() {
	case ',':
		s.At++
		return false, true
	case closing:
		s.At++
		return true, true
	}
	return false, false
}

// Skip steps over a value.
func (s *Scanner) Skip() bool {
	_, ok := s.Value()
	return ok
}

// Unquote decodes a string literal. What cannot be decoded is returned as it
// is, without its quotes: such a name matches nothing and is passed on. What is
// no string literal is the empty string.
func Unquote(literal []byte) string {
	if len(literal) < 2 || literal[0] != '"' {
		return ""
	}
	if bytes.IndexByte(literal, '\\') < 0 {
		return string(literal[1 : len(literal)-1])
	}
	if v, err := Parse(literal); err == nil {
		if s, ok := v.(String); ok {
			return string(s)
		}
	}
	return string(literal[1 : len(literal)-1])
}

// Members hands over the raw members of an object, in order, repeated keys
// included. It reports false where the text is no object.
func Members(object []byte, each func(key string, value []byte)) bool {
	s := Scanner{Data: object}
	return s.Object(func(key string) bool {
		v, ok := s.Value()
		if ok {
			each(key, v.Of(object))
		}
		return ok
	})
}
