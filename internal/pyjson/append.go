package pyjson

import (
	"unicode/utf16"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// Append writes v to dst in the style of Python's json.dumps and returns the
// longer slice: ", " and ": " between tokens, \uXXXX for everything beyond
// ASCII, number literals as they are. A nil value is written as null.
func Append(dst []byte, v Value) []byte {
	switch v := v.(type) {
	case Bool:
		if v {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case Number:
		return append(dst, v...)
	case String:
		return AppendString(dst, string(v))
	case Array:
		dst = append(dst, '[')
		for i, item := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = Append(dst, item)
		}
		return append(dst, ']')
	case *Object:
		dst = append(dst, '{')
		first := true
		for key, value := range v.All() {
			if !first {
				dst = append(dst, ", "...)
			}
			first = false
			dst = AppendString(dst, key)
			dst = append(dst, ": "...)
			dst = Append(dst, value)
		}
		return append(dst, '}')
	}
	return append(dst, "null"...)
}

// Marshal returns v in the style of Python's json.dumps, see [Append].
func Marshal(v Value) []byte { return Append(nil, v) }

// AppendString writes s as a quoted ASCII string. Bytes that are neither UTF-8
// nor an encoded surrogate are written as U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			dst = appendASCII(dst, c)
			i++
			continue
		}
		r, size := DecodeRune(s[i:])
		if r > 0xFFFF {
			high, low := utf16.EncodeRune(r)
			dst = appendEscape(appendEscape(dst, high), low)
		} else {
			dst = appendEscape(dst, r)
		}
		i += size
	}
	return append(dst, '"')
}

func appendASCII(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	}
	if c < 0x20 {
		return appendEscape(dst, rune(c))
	}
	return append(dst, c)
}

func appendEscape(dst []byte, r rune) []byte {
	return append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// DecodeRune returns the first character of s, which is not empty, and its
// size in bytes: as utf8.DecodeRuneInString does, but a lone surrogate, which
// [Parse] keeps in its three byte form, is one character.
func DecodeRune(s string) (r rune, size int) {
	r, size = utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && size == 1 {
		if surrogate, ok := surrogateAt(s); ok {
			return surrogate, 3
		}
	}
	return r, size
}

// surrogateAt decodes a surrogate in its three byte form.
func surrogateAt(s string) (rune, bool) {
	if len(s) < 3 || s[0] != 0xED || s[1] < 0xA0 || s[1] > 0xBF || s[2]&0xC0 != 0x80 {
		return 0, false
	}
	return 0xD000 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), true
}
