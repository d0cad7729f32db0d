package pyjson

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Value is one JSON value: [Null], [Bool], [Number], [String], [Array] or
// *[Object]. The set is closed.
type Value interface{ isValue() }

// Null is the JSON value null.
type Null struct{}

// Bool is true or false.
type Bool bool

// Number is a number literal as written, such as "7", "7.0", "1e3", "NaN",
// "Infinity" or "-Infinity". It is kept as text because seeds reach 2^64-1 and
// a float64 would round them.
type Number string

// String is a decoded string. A lone surrogate escape, which Python accepts
// and a Go string cannot hold as valid UTF-8, is kept in its three byte form
// (0xED 0xA0..0xBF 0x80..0xBF) and written back as the same escape.
type String string

// Array is a JSON array.
type Array []Value

func (Null) isValue()    {}
func (Bool) isValue()    {}
func (Number) isValue()  {}
func (String) isValue()  {}
func (Array) isValue()   {}
func (*Object) isValue() {}

// Int returns n as a Number.
func Int(n int64) Number { return Number(strconv.FormatInt(n, 10)) }

// Float returns f as Python prints it: 7 is "7.0", 1e16 is "1e+16", and the
// values that are no numbers are "NaN", "Infinity" and "-Infinity".
func Float(f float64) Number { return Number(formatFloat(f)) }

// Strings returns list as an Array of String.
func Strings(list []string) Array {
	a := make(Array, len(list))
	for i, s := range list {
		a[i] = String(s)
	}
	return a
}

// IsInt reports whether Python reads the literal as an int rather than a float.
func (n Number) IsInt() bool {
	return n != "" && !strings.ContainsAny(string(n), ".eEN") && !n.isInfinite()
}

func (n Number) isInfinite() bool { return n == "Infinity" || n == "-Infinity" }

// BigInt returns the exact value of an int literal; ok is false for a float.
func (n Number) BigInt() (i *big.Int, ok bool) {
	if !n.IsInt() {
		return nil, false
	}
	return new(big.Int).SetString(string(n), 10)
}

// Int64 returns the value of an int literal that fits 64 bits.
func (n Number) Int64() (i int64, ok bool) {
	if !n.IsInt() {
		return 0, false
	}
	i, err := strconv.ParseInt(string(n), 10, 64)
	return i, err == nil
}

// Float64 returns the nearest float64. Literals beyond its range give an
// infinity, as they do in Python.
func (n Number) Float64() float64 {
	switch n {
	case "NaN":
		return math.NaN()
	case "Infinity":
		return math.Inf(1)
	case "-Infinity":
		return math.Inf(-1)
	}
	f, _ := strconv.ParseFloat(string(n), 64) // the error is about the range, f is then ±Inf
	return f
}

// Python returns the literal Python prints after having read n: "1e3" becomes
// "1000.0", "-0" becomes "0".
func (n Number) Python() Number {
	if n.IsInt() {
		if n == "-0" {
			return "0"
		}
		return n
	}
	return Float(n.Float64())
}

// formatFloat is Python's repr of a float, with json's names for the values
// that are no numbers.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	sci := strconv.FormatFloat(f, 'e', -1, 64)
	mark := strings.IndexByte(sci, 'e')
	exp, _ := strconv.Atoi(sci[mark+1:])
	if exp < -4 || exp >= 16 {
		return sci
	}
	plain := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(plain, ".") {
		plain += ".0"
	}
	return plain
}

// Normalize returns v with every number as [Number.Python] gives it. Objects
// and arrays are copied; v stays as it is.
func Normalize(v Value) Value {
	return transform(v, func(v Value) Value {
		if n, ok := v.(Number); ok {
			return n.Python()
		}
		return v
	})
}

// Clone returns a deep copy of v. The copy does not carry raw bytes.
func Clone(v Value) Value { return transform(v, func(v Value) Value { return v }) }

// transform copies a tree, passing each leaf through leaf.
func transform(v Value, leaf func(Value) Value) Value {
	switch v := v.(type) {
	case Array:
		out := make(Array, len(v))
		for i, item := range v {
			out[i] = transform(item, leaf)
		}
		return out
	case *Object:
		out := &Object{}
		for key, member := range v.All() {
			out.Set(key, transform(member, leaf))
		}
		return out
	}
	return leaf(v)
}

// Equal reports whether a and b have the same shape and values. Objects are
// compared with the order of their members, numbers by their literals.
func Equal(a, b Value) bool {
	switch a := a.(type) {
	case Array:
		b, ok := b.(Array)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !Equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case *Object:
		b, ok := b.(*Object)
		if !ok || a.Len() != b.Len() {
			return false
		}
		for i := range a.members {
			if a.members[i].key != b.members[i].key || !Equal(a.members[i].value, b.members[i].value) {
				return false
			}
		}
		return true
	}
	return a == b
}
