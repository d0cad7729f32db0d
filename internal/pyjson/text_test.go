package pyjson_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// inside reports whether a string is a part of data.
func inside[S ~string](data []byte, s S) bool {
	at := uintptr(unsafe.Pointer(unsafe.StringData(string(s))))
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	return at >= begin && at < begin+uintptr(len(data))
}

// A long string is not copied. A short one is: it may be kept, and must not
// keep the whole input.
func TestLongStringsAreNotCopied(t *testing.T) {
	long := strings.Repeat("iVBORw0KGgo\u00e4", 1<<14)
	data := []byte(`{"` + long + `": ["` + long + `", "short", 0.` + strings.Repeat("1", 1<<17) + `, 7]}`)
	v := must.Get(pyjson.Parse(data))(t)
	o := v.(*pyjson.Object)
	require.Equal(t, []string{long}, o.Keys())
	require.True(t, inside(data, o.Keys()[0]))
	list := o.Array(long)
	require.Equal(t, pyjson.String(long), list[0])
	require.True(t, inside(data, list[0].(pyjson.String)))
	require.Equal(t, pyjson.String("short"), list[1])
	require.False(t, inside(data, list[1].(pyjson.String)))
	require.True(t, inside(data, list[2].(pyjson.Number)))
	require.False(t, inside(data, list[3].(pyjson.Number)))
}

// A long string with escapes is decoded into one buffer of the right size.
func TestLongStringsWithEscapes(t *testing.T) {
	half := strings.Repeat("iVBORw0KGgo", 1<<16)
	for name, tt := range map[string]struct{ text, want string }{
		"one":          {half + `\n` + half, half + "\n" + half},
		"first":        {`\n` + half, "\n" + half},
		"last":         {half + `\"`, half + `"`},
		"nothing else": {strings.Repeat(`\"`, 1<<17), strings.Repeat(`"`, 1<<17)},
		"units":        {strings.Repeat(`\ud83d\ude00`, 1<<15), strings.Repeat("😀", 1<<15)},
		"runes":        {strings.Repeat(`ä\t`, 1<<15), strings.Repeat("ä\t", 1<<15)},
	} {
		t.Run(name, func(t *testing.T) {
			data := []byte(`"` + tt.text + `"`)
			require.Equal(t, pyjson.String(tt.want), must.Get(pyjson.Parse(data))(t))
			require.LessOrEqual(t, testing.AllocsPerRun(2, func() { _, _ = pyjson.Parse(data) }), 4.0)
		})
	}
}

// Whoever parses a large text can let others go first, whatever it is made of.
func TestParseRests(t *testing.T) {
	const size = 1 << 20
	beside.Cases(t, map[string]string{
		"one string":     `"` + strings.Repeat("x", size) + `"`,
		"an escape":      `"\n` + strings.Repeat("x", size) + `"`,
		"escapes":        `"` + strings.Repeat(`\n`, size/2) + `"`,
		"runes":          `"` + strings.Repeat("ä", size/2) + `"`,
		"many strings":   "[" + strings.Repeat(`"x", `, size/5) + `""]`,
		"many keys":      "{" + strings.Repeat(`"x": 1, `, size/8) + `"y": 1}`,
		"many values":    "[" + strings.Repeat("1,", size/2) + "1]",
		"blanks":         strings.Repeat(" ", size) + "1",
		"blanks between": "[" + strings.Repeat(" ", size) + "]",
		"digits":         "0." + strings.Repeat("1", size),
	}, func(t *testing.T, text string) {
		rests := 0
		v := must.Get(pyjson.ParseWith([]byte(text), func() { rests++ }))(t)
		require.InDelta(t, size/(32<<10), rests, 2)
		require.True(t, pyjson.Equal(must.Get(pyjson.Parse([]byte(text)))(t), v))
	})
}

// FuzzLongString: a string means the same in the middle of a long one, which
// is read in another way.
func FuzzLongString(f *testing.F) {
	pad := strings.Repeat("x", 64<<10)
	for _, s := range []string{``, `\n`, `ä`, `"`, `\`, `\"`, `\ud83d\ude00`, `\ud83d`, "\x01", `\u12g4`, "\xff", `\\"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		short, shortErr := pyjson.Parse([]byte(`"` + s + `"`))
		long, longErr := pyjson.Parse([]byte(`"` + pad + s + pad + `"`))
		if shortErr != nil {
			require.Error(t, longErr)
			return
		}
		require.NoError(t, longErr)
		require.Equal(t, pyjson.String(pad)+short.(pyjson.String)+pyjson.String(pad), long)
	})
}

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

func TestStrict(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 400)
	for in, want := range map[string]string{
		`{"a": NaN, "b": [Infinity,-Infinity], "c": "NaN, Infinity"}`: `{"a": null, "b": [1e+308,-1e+308], "c": "NaN, Infinity"}`,
		`NaN`: `null`, `-Infinity`: `-1e+308`,
		`[1e400, -1E400, 1e-400, 1e308, ` + long + `, -` + long + `, 18446744073709551615]`:      `[1e+308, -1e+308, 1e-400, 1e308, 1e+308, -1e+308, 18446744073709551615]`,
		`["\ud83d", "\ude00", "\ud83d\ude00", "\\ud83d", "\ud83d\ud83d\ude00", "\ud83dx\u00e4"]`: `["\ufffd", "\ufffd", "\ud83d\ude00", "\\ud83d", "\ufffd\ud83d\ude00", "\ufffdx\u00e4"]`,
		`"\"\ud800\"\\"`: `"\"\ufffd\"\\"`,
		`{"\ud800": 1}`:  `{"\ufffd": 1}`,
		`"\uDBFF"`:       `"\ufffd"`,
		`[`:              `[`,
		`, `:             `, `,
		``:               ``,
	} {
		assert.Equal(t, want, string(pyjson.Strict([]byte(in))), in)
	}
	same := []byte(`{"3": {"seed": 18446744073709551615, "x": "\u00e4\ud83d\ude00"}}`)
	assert.Same(t, &same[0], &pyjson.Strict(same)[0], "nothing is copied where nothing changes")
}

func TestFinite(t *testing.T) {
	t.Parallel()
	for in, want := range map[pyjson.Number]pyjson.Number{
		"7": "7", "7.5": "7.5", "-3": "-3", "1e+21": "1e+21", "NaN": "1e+308", "Infinity": "1e+308", "-Infinity": "-1e+308", "1e400": "1e+308", "": "0",
	} {
		assert.Equal(t, want, pyjson.Finite(in), in)
	}
}

// FuzzStrict: what Python reads, a strict parser reads afterwards, and the same.
func FuzzStrict(f *testing.F) {
	for _, text := range []string{
		`{"a": [1, -2.5e3, NaN, "x\"y\ud800", null, {"b": -Infinity}], "a\\": true, "": 1e999}`, `"\ud83d\ude00\udc00"`, `[1E+400]`, `NaN`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		out := pyjson.Strict(text) // any text at all ends
		tree, err := pyjson.Parse(text)
		if err != nil {
			return
		}
		var strict any
		require.NoError(t, json.Unmarshal(out, &strict), "%q became %q", text, out)
		again := must.Get(pyjson.Parse(out))(t)
		require.Equal(t, pyjson.Marshal(must.Get(pyjson.Parse(pyjson.Strict(pyjson.Marshal(tree))))(t)), pyjson.Marshal(again))
		require.Equal(t, out, pyjson.Strict(out))
	})
}
