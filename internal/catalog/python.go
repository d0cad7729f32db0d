package catalog

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// exception is what Python code of a ComfyUI server throws while it validates
// a prompt. Its type and text are shown to clients.
type exception struct{ kind, text string }

func (e *exception) Error() string { return e.kind + ": " + e.text }

func typeError(format string, args ...any) *exception {
	return &exception{"TypeError", fmt.Sprintf(format, args...)}
}

// typeName is Python's name for the type of a JSON value.
func typeName(v pyjson.Value) string {
	switch v := v.(type) {
	case pyjson.Bool:
		return "bool"
	case pyjson.Number:
		if v.IsInt() {
			return "int"
		}
		return "float"
	case pyjson.String:
		return "str"
	case pyjson.Array:
		return "list"
	case *pyjson.Object:
		return "dict"
	}
	return "NoneType"
}

// truthy is Python's bool().
func truthy(v pyjson.Value) bool {
	switch v := v.(type) {
	case pyjson.Bool:
		return bool(v)
	case pyjson.Number:
		return v.Float64() != 0 // NaN is true
	case pyjson.String:
		return v != ""
	case pyjson.Array:
		return len(v) > 0
	case *pyjson.Object:
		return v.Len() > 0
	}
	return false
}

// pyStr is Python's str().
func pyStr(v pyjson.Value) string {
	if s, ok := v.(pyjson.String); ok {
		return string(s)
	}
	return pyRepr(v)
}

// pyRepr is Python's repr().
func pyRepr(v pyjson.Value) string { return string(appendRepr(nil, v)) }

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

// appendReprString quotes with ' unless only " avoids an escape.
func appendReprString(dst []byte, s string) []byte {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	dst = append(dst, quote)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			// pyjson keeps a lone surrogate in its three byte form.
			if len(s)-i >= 3 && s[i] == 0xED {
				r, size = 0xD000|rune(s[i+1]&0x3F)<<6|rune(s[i+2]&0x3F), 3
			}
		}
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

// pyStrip drops what int() and float() ignore around a number: blanks, but not
// the separators \x1c to \x1f, which str.strip() drops too.
func pyStrip(s string) string { return strings.TrimFunc(s, unicode.IsSpace) }

// maxIntDigits is CPython's limit for the conversion of text to an int.
const maxIntDigits = 4300

// toInt is Python's int(). ok is false where Python might read digits of
// another script than ASCII: the value is then left for the instance.
func toInt(v pyjson.Value) (n pyjson.Number, ok bool, fault *exception) {
	switch v := v.(type) {
	case pyjson.Bool:
		if v {
			return "1", true, nil
		}
		return "0", true, nil
	case pyjson.Number:
		if v.IsInt() {
			return v, true, nil
		}
		f := v.Float64()
		switch {
		case math.IsNaN(f):
			return "", false, &exception{"ValueError", "cannot convert float NaN to integer"}
		case math.IsInf(f, 0):
			return "", false, &exception{"OverflowError", "cannot convert float infinity to integer"}
		}
		i, _ := big.NewFloat(f).Int(nil)
		return pyjson.Number(i.String()), true, nil
	case pyjson.String:
		return parseInt(string(v))
	}
	return "", false, typeError("int() argument must be a string, a bytes-like object or a real number, not '%s'", typeName(v))
}

func parseInt(s string) (n pyjson.Number, ok bool, fault *exception) {
	text := pyStrip(s)
	digits := strings.TrimLeft(text, "+-")
	if len(text)-len(digits) > 1 || !plainDigits(digits) {
		if hasOtherDigits(s) {
			return "", false, nil
		}
		return "", false, &exception{"ValueError", "invalid literal for int() with base 10: " + pyRepr(pyjson.String(s))}
	}
	digits = strings.ReplaceAll(digits, "_", "")
	if len(digits) > maxIntDigits {
		return "", false, &exception{"ValueError", fmt.Sprintf(
			"Exceeds the limit (%d digits) for integer string conversion: value has %d digits; use sys.set_int_max_str_digits() to increase the limit",
			maxIntDigits, len(digits))}
	}
	i, _ := new(big.Int).SetString(digits, 10)
	if text[0] == '-' {
		i.Neg(i)
	}
	return pyjson.Number(i.String()), true, nil
}

// plainDigits reports whether s is ASCII digits with single underscores
// between them.
func plainDigits(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
		case c == '_' && i > 0 && i < len(s)-1 && s[i-1] != '_':
		default:
			return false
		}
	}
	return s != ""
}

func hasOtherDigits(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf && unicode.Is(unicode.Nd, r) })
}

// toFloat is Python's float(); ok is as for toInt.
func toFloat(v pyjson.Value) (n pyjson.Number, ok bool, fault *exception) {
	switch v := v.(type) {
	case pyjson.Bool:
		if v {
			return "1.0", true, nil
		}
		return "0.0", true, nil
	case pyjson.Number:
		if !v.IsInt() {
			return v, true, nil
		}
		f := v.Float64()
		if math.IsInf(f, 0) {
			return "", false, &exception{"OverflowError", "int too large to convert to float"}
		}
		return pyjson.Float(f), true, nil
	case pyjson.String:
		f, known := parseFloat(string(v))
		if !known {
			if hasOtherDigits(string(v)) {
				return "", false, nil
			}
			return "", false, &exception{"ValueError", "could not convert string to float: " + pyRepr(v)}
		}
		return pyjson.Float(f), true, nil
	}
	return "", false, typeError("float() argument must be a string or a real number, not '%s'", typeName(v))
}

// parseFloat reads what Python's float() reads from a string: decimal only,
// blanks around, underscores between digits, and names of the values that are
// no numbers. strconv alone would take hexadecimal too.
func parseFloat(s string) (float64, bool) {
	s = strings.ToLower(pyStrip(s))
	body := s
	if body != "" && (body[0] == '+' || body[0] == '-') {
		body = body[1:]
	}
	switch body {
	case "nan":
		return math.NaN(), true
	case "inf", "infinity":
		if s[0] == '-' {
			return math.Inf(-1), true
		}
		return math.Inf(1), true
	}
	mantissa, exponent, hasExponent := strings.Cut(body, "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if whole == "" && fraction == "" ||
		whole != "" && !plainDigits(whole) || fraction != "" && !plainDigits(fraction) {
		return 0, false
	}
	if hasExponent {
		if exponent != "" && (exponent[0] == '+' || exponent[0] == '-') {
			exponent = exponent[1:]
		}
		if !plainDigits(exponent) {
			return 0, false
		}
	}
	f, _ := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64) // the error is about the range, f is then 0 or ±Inf
	return f, true
}

// number is the value of a bool or number for comparisons; ok is false for
// other types.
func number(v pyjson.Value) (n pyjson.Number, ok bool) {
	switch v := v.(type) {
	case pyjson.Bool:
		n, _, _ = toInt(v)
		return n, true
	case pyjson.Number:
		return v, true
	}
	return "", false
}

// compare orders two numbers exactly; ok is false if one of them is NaN.
func compare(a, b pyjson.Number) (order int, ok bool) {
	if x, isInt := a.Int64(); isInt {
		if y, isInt := b.Int64(); isInt {
			switch {
			case x < y:
				return -1, true
			case x > y:
				return 1, true
			}
			return 0, true
		}
	}
	x, okX := exact(a)
	y, okY := exact(b)
	if !okX || !okY {
		return 0, false
	}
	return x.Cmp(y), true
}

func exact(n pyjson.Number) (*big.Float, bool) {
	if i, ok := n.BigInt(); ok {
		return new(big.Float).SetInt(i), true
	}
	f := n.Float64()
	if math.IsNaN(f) {
		return nil, false
	}
	return big.NewFloat(f), true
}

// pyLess is Python's a < b.
func pyLess(a, b pyjson.Value, operator string) (bool, *exception) {
	x, okX := number(a)
	y, okY := number(b)
	if okX && okY {
		order, ok := compare(x, y)
		if operator == ">" {
			return ok && order > 0, nil
		}
		return ok && order < 0, nil
	}
	if s, ok := a.(pyjson.String); ok {
		if t, ok := b.(pyjson.String); ok {
			if operator == ">" {
				return s > t, nil
			}
			return s < t, nil
		}
	}
	return false, typeError("'%s' not supported between instances of '%s' and '%s'", operator, typeName(a), typeName(b))
}

// pyEqual is Python's ==: 1, 1.0 and True are equal, the order of keys does
// not count.
func pyEqual(a, b pyjson.Value) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		if !ok {
			return false
		}
		order, ordered := compare(x, y)
		return ordered && order == 0
	}
	switch a := a.(type) {
	case pyjson.Array:
		b, ok := b.(pyjson.Array)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !pyEqual(a[i], b[i]) {
				return false
			}
		}
		return true
	case *pyjson.Object:
		b, ok := b.(*pyjson.Object)
		if !ok || a.Len() != b.Len() {
			return false
		}
		for key, value := range a.All() {
			other, ok := b.Get(key)
			if !ok || !pyEqual(value, other) {
				return false
			}
		}
		return true
	case pyjson.String:
		return a == b
	}
	_, isNull := b.(pyjson.Null)
	return isNull
}
