package pyjson_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// count counts the values of a tree and how deep they lie.
func count(v pyjson.Value) (values, depth int) {
	children := func(yield func(pyjson.Value)) {
		switch v := v.(type) {
		case pyjson.Array:
			for _, child := range v {
				yield(child)
			}
		case *pyjson.Object:
			for _, child := range v.All() {
				yield(child)
			}
		}
	}
	children(func(child pyjson.Value) {
		n, d := count(child)
		values += n
		depth = max(depth, d)
	})
	switch v.(type) {
	case pyjson.Array, *pyjson.Object:
		depth++
	}
	return values + 1, depth
}

// metered is the meter of a text, however it arrives.
func metered(t *testing.T, text string) *pyjson.Meter {
	t.Helper()
	var m pyjson.Meter
	_, _ = m.Write([]byte(text))
	for size := 1; size < min(len(text), 8); size++ {
		var parts pyjson.Meter
		for part := range slices.Chunk([]byte(text), size) {
			_, _ = parts.Write(part)
		}
		require.Equal(t, m, parts, "%q in parts of %d", text, size)
	}
	return &m
}

func TestMeter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int{
		"":                                     {0, 0},
		" \n":                                  {0, 0},
		"1":                                    {1, 0},
		`"a,b[{\",\\"`:                         {1, 0},
		`["a\"b", "\\", "\\\"[", "", "\n,\t"]`: {6, 1},
		"{}":                                   {2, 1},
		"[1,2,3]":                              {4, 1},
		`{"a": [1, {"b": "],[" }]}`:            {5, 3},
		"[" + strings.Repeat("{},", 9) + "{}]": {21, 2},
	} {
		m := metered(t, text)
		require.Equal(t, want, [2]int{m.Values(), m.Depth()}, text)
	}
}

func FuzzMeter(f *testing.F) {
	for _, text := range []string{`{"a": [1, {"b": "],["}], "c\"": null}`, "[{},{},[]]", `"\\"`, "[[[[", `{"a":1,"a":2}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m := metered(t, text)
		v, err := pyjson.Parse([]byte(text))
		if err != nil {
			return
		}
		values, depth := count(v)
		require.GreaterOrEqual(t, m.Values(), values)
		require.GreaterOrEqual(t, m.Depth(), depth)
		// Exactly that deep, but for what a repeated key has replaced.
		require.LessOrEqual(t, m.Depth(), pyjson.MaxDepth)
	})
}
