package python

import (
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// TypeName is Python's name for the type of a value.
func TypeName(v pyjson.Value) string {
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

// Bool is Python's bool(): what an if takes v for.
func Bool(v pyjson.Value) bool {
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

// Equal is Python's ==: 1, 1.0 and True are equal, and the order of keys does
// not count.
func Equal(a, b pyjson.Value) bool {
	if x, ok := Number(a); ok {
		y, ok := Number(b)
		if !ok {
			return false
		}
		order, ordered := Compare(x, y)
		return ordered && order == 0
	}
	switch a := a.(type) {
	case pyjson.Array:
		b, ok := b.(pyjson.Array)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !Equal(a[i], b[i]) {
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
			if !ok || !Equal(value, other) {
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
