package comfyui

import (
	"bytes"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// span is a part of some text: data[from:to].
type span struct{ from, to int }

func (s span) of(data []byte) []byte { return data[s.from:s.to:s.to] }

// scanner walks over JSON text in place, without building a tree: a hub looks
// at a few members of each of thousands of messages a second. It is tolerant
// to everything Python writes (NaN, Infinity) and checks no more than it needs
// to find its way; its methods report false where that way ends.
type scanner struct {
	data []byte
	at   int
}

func (s *scanner) blanks() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// peek returns the first byte of the next token, 0 at the end.
func (s *scanner) peek() byte {
	s.blanks()
	if s.at < len(s.data) {
		return s.data[s.at]
	}
	return 0
}

// end reports whether nothing but blanks is left.
func (s *scanner) end() bool { return s.peek() == 0 && s.at >= len(s.data) }

// str steps over a string and returns its place, quotes included.
func (s *scanner) str() (span, bool) {
	if s.peek() != '"' {
		return span{}, false
	}
	start := s.at
	for s.at++; s.at < len(s.data); s.at++ {
		switch s.data[s.at] {
		case '\\':
			s.at++
		case '"':
			s.at++
			return span{start, s.at}, true
		}
	}
	return span{}, false
}

// value steps over any value and returns its place.
func (s *scanner) value() (span, bool) {
	switch s.peek() {
	case '"':
		return s.str()
	case '{', '[':
		return s.nested()
	}
	start := s.at
	for s.at < len(s.data) && !isDelimiter(s.data[s.at]) {
		s.at++
	}
	return span{start, s.at}, s.at > start
}

// nested steps over an object or array by counting brackets.
func (s *scanner) nested() (span, bool) {
	start, depth := s.at, 0
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case '"':
			if _, ok := s.str(); !ok {
				return span{}, false
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.at++
				return span{start, s.at}, true
			}
		}
		s.at++
	}
	return span{}, false
}

func isDelimiter(c byte) bool {
	switch c {
	case ',', ':', '{', '}', '[', ']', '"', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// object walks over an object. member is called with the scanner at each value
// and must step over it; false stops the walk.
func (s *scanner) object(member func(key string) bool) bool {
	if s.peek() != '{' {
		return false
	}
	s.at++
	if s.peek() == '}' {
		s.at++
		return true
	}
	for {
		key, ok := s.str()
		if !ok || s.peek() != ':' {
			return false
		}
		s.at++
		if !member(text(key.of(s.data))) {
			return false
		}
		if done, ok := s.next('}'); done || !ok {
			return ok
		}
	}
}

// array walks over an array as object does.
func (s *scanner) array(item func(i int) bool) bool {
	if s.peek() != '[' {
		return false
	}
	s.at++
	if s.peek() == ']' {
		s.at++
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
func (s *scanner) next(closing byte) (done, ok bool) {
	switch s.peek() {
	case ',':
		s.at++
		return false, true
	case closing:
		s.at++
		return true, true
	}
	return false, false
}

// skip steps over a value.
func (s *scanner) skip() bool {
	_, ok := s.value()
	return ok
}

// text decodes a string literal. What cannot be decoded is returned as it is:
// such a name matches nothing and is passed on.
func text(literal []byte) string {
	if len(literal) < 2 || literal[0] != '"' {
		return ""
	}
	if bytes.IndexByte(literal, '\\') < 0 {
		return string(literal[1 : len(literal)-1])
	}
	if v, err := pyjson.Parse(literal); err == nil {
		if s, ok := v.(pyjson.String); ok {
			return string(s)
		}
	}
	return string(literal[1 : len(literal)-1])
}

// members returns the raw values of the wanted members of an object.
func members(object []byte, want func(key string, value []byte)) bool {
	s := scanner{data: object}
	return s.object(func(key string) bool {
		v, ok := s.value()
		if ok {
			want(key, v.of(object))
		}
		return ok
	})
}

// edit replaces one part of a text.
type edit struct {
	span
	with []byte
}

// splice applies edits, which are in order and do not overlap. Without any it
// returns data itself.
func splice(data []byte, edits []edit) []byte {
	if len(edits) == 0 {
		return data
	}
	size := len(data)
	for _, e := range edits {
		size += len(e.with) - (e.to - e.from)
	}
	out := make([]byte, 0, size)
	at := 0
	for _, e := range edits {
		out = append(out, data[at:e.from]...)
		out = append(out, e.with...)
		at = e.to
	}
	return append(out, data[at:]...)
}

func quoted(s string) []byte { return pyjson.AppendString(nil, s) }
