package python

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// strip drops what int() and float() ignore around a number: blanks, but not
// the separators \x1c to \x1f, which str.strip() drops too.
func strip(s string) string { return strings.TrimFunc(s, unicode.IsSpace) }

// maxIntDigits is CPython's limit for the conversion of text to an int.
const maxIntDigits = 4300

// Int is Python's int(). A number that is an int stays as it is written. ok is
// false without a fault for digits beyond ASCII: which of them Python reads
// depends on its version.
func Int(v pyjson.Value) (n pyjson.Number, ok bool, fault *Exception) {
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
			return "", false, &Exception{"ValueError", "cannot convert float NaN to integer"}
		case math.IsInf(f, 0):
			return "", false, &Exception{"OverflowError", "cannot convert float infinity to integer"}
		}
		i, _ := big.NewFloat(f).Int(nil)
		return pyjson.Number(i.String()), true, nil
	case pyjson.String:
		return parseInt(string(v))
	}
	return "", false, TypeError("int() argument must be a string, a bytes-like object or a real number, not '%s'", TypeName(v))
}

// ClampedInt is Python's int() of a text. A value beyond Go's int becomes the
// nearest int; ok is false where int() raises.
func ClampedInt(text string) (n int, ok bool) {
	number, ok, _ := parseInt(text)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(string(number)) // gives the nearest int with an error about the range
	return n, err == nil || errors.Is(err, strconv.ErrRange)
}

func parseInt(s string) (n pyjson.Number, ok bool, fault *Exception) {
	text := strip(s)
	digits := strings.TrimLeft(text, "+-")
	if len(text)-len(digits) > 1 || !plainDigits(digits) {
		if hasOtherDigits(s) {
			return "", false, nil
		}
		return "", false, &Exception{"ValueError", "invalid literal for int() with base 10: " + quoted(s)}
	}
	digits = strings.ReplaceAll(digits, "_", "")
	if len(digits) > maxIntDigits {
		return "", false, &Exception{"ValueError", fmt.Sprintf(
			"Exceeds the limit (%d digits) for integer string conversion: value has %d digits; use sys.set_int_max_str_digits() to increase the limit",
			maxIntDigits, len(digits))}
	}
	i, _ := new(big.Int).SetString(digits, 10)
	if text[0] == '-' {
		i.Neg(i)
	}
	return pyjson.Number(i.String()), true, nil
}

// quoted is the beginning of the repr of a text, as int() quotes what it refuses.
func quoted(s string) string {
	const maxQuoted = 200 // characters
	repr, end := Repr(pyjson.String(s)), 0
	for n := 0; n < maxQuoted && end < len(repr); n++ {
		_, size := utf8.DecodeRuneInString(repr[end:])
		end += size
	}
	return repr[:end]
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

// Float is Python's float(). A number that is a float stays as it is written; ok
// is as for [Int].
func Float(v pyjson.Value) (n pyjson.Number, ok bool, fault *Exception) {
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
		f := v.Python().Float64() // Python has no int -0
		if math.IsInf(f, 0) {
			return "", false, &Exception{"OverflowError", "int too large to convert to float"}
		}
		return pyjson.Float(f), true, nil
	case pyjson.String:
		f, known := parseFloat(string(v))
		if !known {
			if hasOtherDigits(string(v)) {
				return "", false, nil
			}
			return "", false, &Exception{"ValueError", "could not convert string to float: " + Repr(v)}
		}
		return pyjson.Float(f), true, nil
	}
	return "", false, TypeError("float() argument must be a string or a real number, not '%s'", TypeName(v))
}

// parseFloat reads what Python's float() reads from a string: decimal only,
// blanks around it, underscores between digits, infinities and NaN. strconv alone
// would take hexadecimal too.
func parseFloat(s string) (float64, bool) {
	s = strip(s)
	body := s
	if body != "" && (body[0] == '+' || body[0] == '-') {
		body = body[1:]
	}
	switch {
	case strings.EqualFold(body, "nan"):
		return math.NaN(), true
	case strings.EqualFold(body, "inf"), strings.EqualFold(body, "infinity"):
		if s[0] == '-' {
			return math.Inf(-1), true
		}
		return math.Inf(1), true
	}
	mantissa, exponent, hasExponent := body, "", false
	if e := strings.IndexAny(body, "eE"); e >= 0 {
		mantissa, exponent, hasExponent = body[:e], body[e+1:], true
	}
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
