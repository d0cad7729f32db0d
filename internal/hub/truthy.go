package hub

import "github.com/comfyhub/comfyhub/internal/pyjson"

// truthy is Python's bool() of a JSON value.
func truthy(v pyjson.Value) bool {
	switch v := v.(type) {
	case nil, pyjson.Null:
		return false
	case pyjson.Bool:
		return bool(v)
	case pyjson.Number:
		f := v.Float64()
		return f != 0 // NaN is true, as in Python
	case pyjson.String:
		return v != ""
	case pyjson.Array:
		return len(v) > 0
	case *pyjson.Object:
		return v.Len() > 0
	}
	return true
}
