package sim

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// exception is a Python exception: what a node or the validation raises.
type exception struct {
	kind    string // "ValueError", "torch.OutOfMemoryError"
	message string
	tips    string // appended to the message shown to clients
}

func (e *exception) Error() string { return e.kind + ": " + e.message }

func raise(kind, format string, args ...any) *exception {
	return &exception{kind: kind, message: fmt.Sprintf(format, args...)}
}

// typeName is the name of the Python type of v.
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

// pyStr is Python's str(v).
func pyStr(v pyjson.Value) string {
	if s, ok := v.(pyjson.String); ok {
		return string(s)
	}
	return pyRepr(v)
}

// pyRepr is Python's repr(v).
func pyRepr(v pyjson.Value) string {
	switch v := v.(type) {
	case pyjson.Bool:
		if v {
			return "True"
		}
		return "False"
	case pyjson.Number:
		switch n := v.Python(); n {
		case "NaN":
			return "nan"
		case "Infinity":
			return "inf"
		case "-Infinity":
			return "-inf"
		default:
			return string(n)
		}
	case pyjson.String:
		return reprString(string(v))
	case pyjson.Array:
		parts := make([]string, len(v))
		for i, item := range v {
			parts[i] = pyRepr(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case *pyjson.Object:
		parts := make([]string, 0, v.Len())
		for key, item := range v.All() {
			parts = append(parts, reprString(key)+": "+pyRepr(item))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return "None"
}

func reprString(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteByte(quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case !strconv.IsPrint(r) && r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case !strconv.IsPrint(r) && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte(quote)
	return b.String()
}

// truthy is Python's bool(v).
func truthy(v pyjson.Value) bool {
	switch v := v.(type) {
	case pyjson.Bool:
		return bool(v)
	case pyjson.Number:
		return v.Float64() != 0
	case pyjson.String:
		return v != ""
	case pyjson.Array:
		return len(v) > 0
	case *pyjson.Object:
		return v.Len() > 0
	}
	return false
}

// Python allows single underscores between digits.
var (
	intText   = regexp.MustCompile(`^[+-]?\d+(_\d+)*$`)
	floatText = regexp.MustCompile(`(?i)^[+-]?(\d+(_\d+)*\.?(\d+(_\d+)*)?(e[+-]?\d+(_\d+)*)?|\.\d+(_\d+)*(e[+-]?\d+(_\d+)*)?|inf|infinity|nan)$`)
)

// toInt is Python's int(v).
func toInt(v pyjson.Value) (pyjson.Number, *exception) {
	switch v := v.(type) {
	case pyjson.Bool:
		if v {
			return "1", nil
		}
		return "0", nil
	case pyjson.Number:
		if v.IsInt() {
			return v.Python(), nil
		}
		f := v.Float64()
		switch {
		case math.IsNaN(f):
			return "", raise("ValueError", "cannot convert float NaN to integer")
		case math.IsInf(f, 0):
			return "", raise("OverflowError", "cannot convert float infinity to integer")
		}
		i, _ := big.NewFloat(f).Int(nil)
		return pyjson.Number(i.String()), nil
	case pyjson.String:
		text := strings.TrimSpace(string(v))
		if !intText.MatchString(text) {
			return "", raise("ValueError", "invalid literal for int() with base 10: %s", reprString(string(v)))
		}
		i, _ := new(big.Int).SetString(strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+"), 10)
		return pyjson.Number(i.String()), nil
	}
	return "", raise("TypeError", "int() argument must be a string, a bytes-like object or a real number, not '%s'", typeName(v))
}

// toFloat is Python's float(v).
func toFloat(v pyjson.Value) (pyjson.Number, *exception) {
	switch v := v.(type) {
	case pyjson.Bool:
		if v {
			return "1.0", nil
		}
		return "0.0", nil
	case pyjson.Number:
		f := v.Float64()
		if v.IsInt() && math.IsInf(f, 0) {
			return "", raise("OverflowError", "int too large to convert to float")
		}
		return pyjson.Float(f), nil
	case pyjson.String:
		text := strings.TrimSpace(string(v))
		if !floatText.MatchString(text) {
			return "", raise("ValueError", "could not convert string to float: %s", reprString(string(v)))
		}
		f, _ := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64) // out of range gives an infinity, as in Python
		return pyjson.Float(f), nil
	}
	return "", raise("TypeError", "float() argument must be a string or a real number, not '%s'", typeName(v))
}

// pyEqual is Python's ==, where 1, 1.0 and True are the same.
func pyEqual(a, b pyjson.Value) bool {
	x, xok := numeric(a)
	y, yok := numeric(b)
	if xok && yok {
		return compareNumbers(x, y) == 0
	}
	return pyjson.Equal(a, b)
}

// numeric returns a number or a bool as a number.
func numeric(v pyjson.Value) (pyjson.Number, bool) {
	switch v := v.(type) {
	case pyjson.Number:
		return v, true
	case pyjson.Bool:
		if v {
			return "1", true
		}
		return "0", true
	}
	return "", false
}

// compareNumbers returns -1, 0 or 1, and 2 if one of them is NaN.
func compareNumbers(a, b pyjson.Number) int {
	x, xok := a.BigInt()
	y, yok := b.BigInt()
	if xok && yok {
		return x.Cmp(y)
	}
	f, g := a.Float64(), b.Float64()
	switch {
	case f < g:
		return -1
	case f > g:
		return 1
	case f == g:
		return 0
	}
	return 2
}
