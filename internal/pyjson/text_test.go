package pyjson_test

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
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
	v, err := pyjson.Parse(data)
	require.NoError(t, err)
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
			v, err := pyjson.Parse(data)
			require.NoError(t, err)
			require.Equal(t, pyjson.String(tt.want), v)
			require.LessOrEqual(t, testing.AllocsPerRun(2, func() { _, _ = pyjson.Parse(data) }), 4.0)
		})
	}
}

// Whoever parses a large text can let others go first, whatever it is made of.
func TestParseRests(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	for name, text := range map[string]string{
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rests := 0
			v, err := pyjson.ParseWith([]byte(text), func() { rests++ })
			require.NoError(t, err)
			require.InDelta(t, size/(32<<10), rests, 2)
			plain, err := pyjson.Parse([]byte(text))
			require.NoError(t, err)
			require.True(t, pyjson.Equal(plain, v))
		})
	}
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
