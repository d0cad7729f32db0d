package python

import (
	"math"
	"math/big"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Number is the value of a bool or a number; ok is false for other types.
func Number(v pyjson.Value) (n pyjson.Number, ok bool) {
	switch v := v.(type) {
	case pyjson.Bool:
		if v {
			return "1", true
		}
		return "0", true
	case pyjson.Number:
		return v, true
	}
	return "", false
}

// Compare returns -1, 0 or 1 as a is less than, equal to or greater than b,
// without rounding either. ok is false if one of them is NaN.
func Compare(a, b pyjson.Number) (order int, ok bool) {
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

// Less is Python's a < b, or a > b if operator is ">". It raises a TypeError for
// types that have no order. Lists, which have one, raise it too: no bound of an
// input is a list.
func Less(a, b pyjson.Value, operator string) (bool, *Exception) {
	x, okX := Number(a)
	y, okY := Number(b)
	if okX && okY {
		order, ok := Compare(x, y)
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
	return false, TypeError("'%s' not supported between instances of '%s' and '%s'", operator, TypeName(a), TypeName(b))
}
