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
