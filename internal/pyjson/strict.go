package pyjson

import (
	"bytes"
	"math"
	"strconv"
)

// Finite returns n, or what stands for it where every parser must be able to
// read it: 1e+308 and -1e+308 for the infinities and for numbers beyond a
// float64, 1e+308 for NaN, and 0 for no number at all.
func Finite(n Number) Number {
	switch f := n.Float64(); {
	case n == "":
		return "0"
	case math.IsInf(f, -1):
		return "-1e+308"
	case math.IsInf(f, 0), math.IsNaN(f):
		return "1e+308"
	}
	return n
}

// Strict returns data, whole tokens of JSON text as Python writes and reads it,
// in a form that every JSON parser reads. NaN becomes null, as in JavaScript;
// an infinity or a number beyond a float64 becomes 1e+308 or -1e+308; half of a
// surrogate pair becomes U+FFFD. All other bytes stay, and text that needs no
// change is returned as it is.
//
// A listing shows the prompts of many people. Browsers refuse all of it for one
// NaN, several other parsers for a 1e400 or a lone surrogate.
func Strict(data []byte) []byte {
	var edits []Edit
	for i := 0; i < len(data); {
		switch c := data[i]; {
		case c == '"':
			i = strictText(data, i, &edits)
		case c == '-', c == 'I', c == 'N', '0' <= c && c <= '9':
			end := i + 1
			for end < len(data) && !isDelimiter(data[end]) {
				end++
			}
			if with := strictNumber(data[i:end]); with != "" {
				edits = append(edits, Edit{Span{i, end}, []byte(with)})
			}
			i = end
		default:
			i++
		}
	}
	return Splice(data, edits)
}

// strictNumber is what to write for a number, "" to leave it.
func strictNumber(literal []byte) string {
	switch literal[0] {
	case 'N':
		return "null"
	case 'I':
		return string(Finite("Infinity"))
	}
	// Only an exponent or hundreds of digits lead beyond a float64.
	if len(literal) < 300 && bytes.IndexByte(literal, 'e') < 0 && bytes.IndexByte(literal, 'E') < 0 && literal[len(literal)-1] != 'y' {
		return ""
	}
	if n := Number(literal); n != Finite(n) {
		return string(Finite(n))
	}
	return ""
}

// strictText steps over the string at i, notes its lone surrogates and returns
// the place behind it.
func strictText(data []byte, i int, edits *[]Edit) int {
	end := len(data)
	for i++; i < len(data); i++ {
		if end == len(data) || end < i {
			n := bytes.IndexByte(data[i:], '"')
			if n < 0 {
				return len(data)
			}
			end = i + n
		}
		n := bytes.IndexByte(data[i:end], '\\')
		if n < 0 {
			return end + 1
		}
		i += n + 1 // what is escaped
		unit, ok := escapedUnit(data, i-1)
		if !ok || unit < 0xD800 || unit > 0xDFFF {
			continue
		}
		if low, ok := escapedUnit(data, i+5); ok && unit < 0xDC00 && low >= 0xDC00 && low <= 0xDFFF {
			i += 10
			continue
		}
		*edits = append(*edits, Edit{Span{i - 1, i + 5}, []byte(`\ufffd`)})
		i += 4
	}
	return len(data)
}

// escapedUnit reads the \uXXXX at i, if there is one.
func escapedUnit(data []byte, i int) (unit uint64, ok bool) {
	if i+6 > len(data) || data[i] != '\\' || data[i+1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(data[i+2:i+6]), 16, 16)
	return unit, err == nil
}
