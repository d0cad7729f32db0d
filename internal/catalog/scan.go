package catalog

import (
	"errors"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// errMalformed says that bytes which should be JSON are not.
var errMalformed = errors.New("catalog: malformed JSON")

// span is a range of bytes.
type span struct{ from, to int }

// scanner walks over JSON text without building values. It finds where values
// stand; it does not check that scalars are well formed, so its callers parse
// what they use, or pass text that has been parsed before.
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

func (s *scanner) take(c byte) bool {
	s.blanks()
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

// value steps over one value of any kind and returns its place.
func (s *scanner) value() (span, error) {
	s.blanks()
	start := s.at
	depth := 0
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case '"':
			if !s.text() {
				return span{}, s.fail()
			}
		case '{', '[':
			depth++
			s.at++
			continue
		case '}', ']':
			if depth == 0 {
				return span{}, s.fail()
			}
			depth--
			s.at++
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return span{}, s.fail()
			}
			s.at++
			continue
		default:
			s.scalar()
		}
		if depth == 0 {
			return span{start, s.at}, nil
		}
	}
	return span{}, s.fail()
}

// scalar steps over a number or a word.
func (s *scanner) scalar() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ',', ':', ' ', '\t', '\n', '\r', '}', ']', '{', '[', '"':
			return
		}
		s.at++
	}
}

// text steps over a string literal.
func (s *scanner) text() bool {
	for s.at++; s.at < len(s.data); s.at++ {
		switch s.data[s.at] {
		case '"':
			s.at++
			return true
		case '\\':
			s.at++
		}
	}
	return false
}

func (s *scanner) fail() error { return fmt.Errorf("%w at offset %d", errMalformed, s.at) }

// members calls each for the members of the object at the current place, in
// order, repeated keys included.
func (s *scanner) members(each func(key string, value span) error) error {
	if !s.take('{') {
		return s.fail()
	}
	if s.take('}') {
		return nil
	}
	for {
		s.blanks()
		start := s.at
		if s.at >= len(s.data) || s.data[s.at] != '"' || !s.text() {
			return s.fail()
		}
		key, err := pyjson.Parse(s.data[start:s.at])
		if err != nil {
			return fmt.Errorf("%w: %w", errMalformed, err)
		}
		if !s.take(':') {
			return s.fail()
		}
		value, err := s.value()
		if err != nil {
			return err
		}
		if err := each(string(key.(pyjson.String)), value); err != nil {
			return err
		}
		if s.take('}') {
			return nil
		}
		if !s.take(',') {
			return s.fail()
		}
	}
}

// items calls each for the items of the array at the current place.
func (s *scanner) items(each func(index int, value span) error) error {
	if !s.take('[') {
		return s.fail()
	}
	if s.take(']') {
		return nil
	}
	for i := 0; ; i++ {
		value, err := s.value()
		if err != nil {
			return err
		}
		if err := each(i, value); err != nil {
			return err
		}
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
			return s.fail()
		}
	}
}
