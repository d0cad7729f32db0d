package pyjson_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestRoundTrip(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"separators", `{"a":[1,2],"b":{}}`, `{"a": [1, 2], "b": {}}`},
		{"order is kept", `{"b":1,"a":2,"1":3}`, `{"b": 1, "a": 2, "1": 3}`},
		{"last of equal keys wins in the first place", `{"a":1,"b":2,"a":3}`, `{"a": 3, "b": 2}`},
		{"seed beyond int64", `18446744073709551615`, `18446744073709551615`},
		{"literals stay as written", `[7, 7.0, 1E+2, -0]`, `[7, 7.0, 1E+2, -0]`},
		{"tokens of Python", `[NaN,Infinity,-Infinity]`, `[NaN, Infinity, -Infinity]`},
		{"beyond ASCII", `"ä😀"`, `"\u00e4\ud83d\ude00"`},
		{"lone surrogate", `"\ud800x\udfff"`, `"\ud800x\udfff"`},
		{"escapes", `"\"\\\/\b\f\n\r\t\u007f\u0001"`, `"\"\\/\b\f\n\r\t` + "\x7f" + `\u0001"`},
		{"blanks", " \t\r\n[ 1 , 2 ] \n", `[1, 2]`},
		{"scalars", `[null,true,false,""]`, `[null, true, false, ""]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := must.Get(pyjson.Parse([]byte(tt.in)))(t)
			assert.Equal(t, tt.want, string(pyjson.Marshal(v)))
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, in := range []string{
		``, ` `, `{`, `[1,]`, `{"a":1,}`, `{'a':1}`, `{"a" 1}`, `nul`, `01`, `1.`, `.5`, `+1`, `-`, `1e`, `--1`,
		`-NaN`, `"a`, "\"a\nb\"", `"\x"`, `"\u12g4"`, "\"\xff\"", "\ufeff1", `1 2`, `[1 2]`,
		strings.Repeat("[", pyjson.MaxDepth+1) + strings.Repeat("]", pyjson.MaxDepth+1),
		strings.Repeat("9", 4301),
	} {
		_, err := pyjson.Parse([]byte(in))
		var syntax *pyjson.SyntaxError
		assert.ErrorAs(t, err, &syntax, "%.40q", in)
	}
}

func TestRaw(t *testing.T) {
	v := must.Get(pyjson.Parse([]byte(`{"prompt": {"3":{"seed":1e2}} , "x" : NaN}`)))(t)
	o := v.(*pyjson.Object)
	assert.Equal(t, `{"3":{"seed":1e2}}`, string(o.Raw("prompt")))
	assert.Equal(t, `NaN`, string(o.Raw("x")))
	o.Set("x", pyjson.Null{})
	assert.Nil(t, o.Raw("x"), "a member that was set has no bytes of the input")
	assert.Nil(t, o.Raw("none"))
}

func TestObject(t *testing.T) {
	o := &pyjson.Object{}
	for i := range 30 {
		o.Set(string(rune('a'+i)), pyjson.Int(int64(i)))
	}
	assert.True(t, o.Delete("c"))
	assert.False(t, o.Delete("c"))
	v, ok := o.Get("d")
	assert.True(t, ok)
	assert.Equal(t, pyjson.Number("3"), v)
	assert.Equal(t, 29, o.Len())
	assert.Equal(t, []string{"a", "b", "d"}, o.Keys()[:3])

	var none *pyjson.Object
	assert.Zero(t, none.Len())
	assert.False(t, none.Has("a"))
	for range none.All() {
		t.Fatal("a nil object has no members")
	}
}

func TestNumber(t *testing.T) {
	tests := []struct {
		in    pyjson.Number
		isInt bool
		want  pyjson.Number
	}{
		{"7", true, "7"},
		{"-0", true, "0"},
		{"7.0", false, "7.0"},
		{"1e3", false, "1000.0"},
		{"1e16", false, "1e+16"},
		{"123456789012345680.0", false, "1.2345678901234568e+17"},
		{"0.0001", false, "0.0001"},
		{"0.00001", false, "1e-05"},
		{"-0.0", false, "-0.0"},
		{"1e999", false, "Infinity"},
		{"NaN", false, "NaN"},
		{"-Infinity", false, "-Infinity"},
		{"18446744073709551616", true, "18446744073709551616"},
	}
	for _, tt := range tests {
		t.Run(string(tt.in), func(t *testing.T) {
			assert.Equal(t, tt.isInt, tt.in.IsInt())
			assert.Equal(t, tt.want, tt.in.Python())
		})
	}
	big, ok := pyjson.Number("18446744073709551616").BigInt()
	require.True(t, ok)
	assert.Equal(t, "18446744073709551616", big.String())
	_, ok = pyjson.Number("18446744073709551616").Int64()
	assert.False(t, ok)
}

func TestCloneIsDeep(t *testing.T) {
	v := must.Get(pyjson.Parse([]byte(`{"a":[{"b":1}]}`)))(t)
	copied := pyjson.Clone(v)
	require.True(t, pyjson.Equal(v, copied))
	v.(*pyjson.Object).Array("a")[0].(*pyjson.Object).Set("b", pyjson.Int(2))
	assert.False(t, pyjson.Equal(v, copied))
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x\u00e4"],"a":null}`, `[NaN,-Infinity]`, `"\ud800"`, `1e5`, `{"3":{"inputs":{"m":["4",0]}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := pyjson.Parse(data)
		if err != nil {
			return
		}
		out := pyjson.Marshal(v)
		again, err := pyjson.Parse(out)
		if err != nil {
			t.Fatalf("own output %q is refused: %v", out, err)
		}
		if !pyjson.Equal(v, again) {
			t.Fatalf("%q changed to %q", data, out)
		}
		if o, ok := v.(*pyjson.Object); ok {
			for _, key := range o.Keys() {
				if _, err := pyjson.Parse(o.Raw(key)); err != nil {
					t.Fatalf("raw bytes of %q: %v", key, err)
				}
			}
		}
	})
}

// FuzzAgainstStandard holds Parse against encoding/json: what that package
// takes as valid must be accepted here, up to the limits of Python.
func FuzzAgainstStandard(f *testing.F) {
	f.Add(`{"a": [1, -2.5e3, "b\n", null, true]}`)
	f.Add(`[[[]]]`)
	f.Fuzz(func(t *testing.T, s string) {
		_, err := pyjson.Parse([]byte(s))
		valid := json.Valid([]byte(s))
		if valid && err != nil {
			if reason := err.Error(); strings.Contains(reason, "UTF-8") || strings.Contains(reason, "deeply") || strings.Contains(reason, "digits") {
				return
			}
			t.Fatalf("%q is refused: %v", s, err)
		}
		if !valid && err == nil && !strings.Contains(s, "NaN") && !strings.Contains(s, "Infinity") {
			t.Fatalf("%q is accepted", s)
		}
	})
}

// A byte that means something in a string is seen among eight others, whatever
// they are.
func TestBytesOfStrings(t *testing.T) {
	for _, beside := range []byte{0x20, '!', '#', '[', ']', 'x', 0x7f} {
		for at := range 48 {
			for c := range 256 {
				b := bytes.Repeat([]byte{beside}, 48)
				b[at] = byte(c)
				v, err := pyjson.Parse([]byte(`"` + string(b) + `"`))
				if c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' {
					require.Error(t, err, "%q", b)
					continue
				}
				require.NoError(t, err, "%q", b)
				require.Equal(t, pyjson.String(b), v)
			}
		}
	}
}
