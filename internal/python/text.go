package python

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Str is Python's str().
func Str(v pyjson.Value) string {
	if s, ok := v.(pyjson.String); ok {
		return string(s)
	}
	return Repr(v)
}

// Repr is Python's repr().
func Repr(v pyjson.Value) string { return string(appendRepr(nil, v)) }

func appendRepr(dst []byte, v pyjson.Value) []byte {
	switch v := v.(type) {
	case pyjson.Bool:
		if v {
			return append(dst, "True"...)
		}
		return append(dst, "False"...)
	case pyjson.Number:
		switch n := v.Python(); n {
		case "NaN":
			return append(dst, "nan"...)
		case "Infinity":
			return append(dst, "inf"...)
		case "-Infinity":
			return append(dst, "-inf"...)
		default:
			return append(dst, n...)
		}
	case pyjson.String:
		return appendReprString(dst, string(v))
	case pyjson.Array:
		dst = append(dst, '[')
		for i, item := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendRepr(dst, item)
		}
		return append(dst, ']')
	case *pyjson.Object:
		dst = append(dst, '{')
		first := true
		for key, value := range v.All() {
			if !first {
				dst = append(dst, ", "...)
			}
			first = false
			dst = appendReprString(dst, key)
			dst = append(dst, ": "...)
			dst = appendRepr(dst, value)
		}
		return append(dst, '}')
	}
	return append(dst, "None"...)
}

// appendReprString quotes with ' unless " alone avoids an escape.
func appendReprString(dst []byte, s string) []byte {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	dst = append(dst, quote)
	for i := 0; i < len(s); {
		r, size := pyjson.DecodeRune(s[i:])
		switch {
		case r == rune(quote) || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case unicode.IsPrint(r) && r < 0xD800, unicode.IsPrint(r) && r > 0xDFFF:
			dst = utf8.AppendRune(dst, r)
		case r <= 0xFF:
			dst = fmt.Appendf(dst, `\x%02x`, r)
		case r <= 0xFFFF:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = fmt.Appendf(dst, `\U%08x`, r)
		}
		i += size
	}
	return append(dst, quote)
}
