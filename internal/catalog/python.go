package catalog

import (
	"fmt"
	"math"
	"math/big"

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
