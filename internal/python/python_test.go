package python

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func parse(tb testing.TB, raw string) pyjson.Value {
	tb.Helper()
	v, err := pyjson.Parse([]byte(raw))
	require.NoError(tb, err, raw)
	return v
}

// The expectations of this file were printed by CPython 3.11.

func TestPythonText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, str, repr string }{
		{`null`, `None`, `None`},
		{`true`, `True`, `True`},
		{`1e3`, `1000.0`, `1000.0`},
		{`NaN`, `nan`, `nan`},
		{`-Infinity`, `-inf`, `-inf`},
		{`"a"`, `a`, `'a'`},
		{`"it's"`, `it's`, `"it's"`},
		{`"it's \"x\""`, `it's "x"`, `'it\'s "x"'`},
		{`"a\\b\n\t\r"`, "a\\b\n\t\r", `'a\\b\n\t\r'`},
		{`"\u0000\u007f\u00a0\u00ad\u00e9\u2028\u4e2d"`, "\x00\x7f\u00a0\u00ad\u00e9\u2028\u4e2d", `'\x00\x7f\xa0\xadé\u2028中'`},
		{`"\ud83d\ude00\ud800"`, "😀\xed\xa0\x80", `'😀\ud800'`},
		{`[1, "x", [], {"a": null}]`, `[1, 'x', [], {'a': None}]`, `[1, 'x', [], {'a': None}]`},
		{`{}`, `{}`, `{}`},
	} {
		require.Equal(t, tt.str, Str(parse(t, tt.in)), tt.in)
		require.Equal(t, tt.repr, Repr(parse(t, tt.in)), tt.in)
	}
}

func TestPythonInt(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`3`: `3`, `3.9`: `3`, `-3.9`: `-3`, `true`: `1`, `false`: `0`, `1e20`: `100000000000000000000`,
		`18446744073709551615`: `18446744073709551615`,
		`"5"`:                  `5`, `" 12\n"`: `12`, `"+7"`: `7`, `"-0"`: `0`, `"007"`: `7`, `"1_000"`: `1000`, `"\u00a05\u2028"`: `5`,
	} {
		n, ok, fault := Int(parse(t, in))
		require.Nil(t, fault, in)
		require.True(t, ok, in)
		require.Equal(t, want, string(n), in)
	}
	for in, want := range map[string]string{
		`"3.7"`:     `ValueError: invalid literal for int() with base 10: '3.7'`,
		`""`:        `ValueError: invalid literal for int() with base 10: ''`,
		`"1__0"`:    `ValueError: invalid literal for int() with base 10: '1__0'`,
		`"_1"`:      `ValueError: invalid literal for int() with base 10: '_1'`,
		`"+-1"`:     `ValueError: invalid literal for int() with base 10: '+-1'`,
		`"5\u001c"`: `ValueError: invalid literal for int() with base 10: '5\x1c'`,
		`"0x10"`:    `ValueError: invalid literal for int() with base 10: '0x10'`,
		`null`:      `TypeError: int() argument must be a string, a bytes-like object or a real number, not 'NoneType'`,
		`{}`:        `TypeError: int() argument must be a string, a bytes-like object or a real number, not 'dict'`,
		`[]`:        `TypeError: int() argument must be a string, a bytes-like object or a real number, not 'list'`,
		`NaN`:       `ValueError: cannot convert float NaN to integer`,
		`-Infinity`: `OverflowError: cannot convert float infinity to integer`,
		`"` + strings.Repeat("1", 4301) + `"`: `ValueError: Exceeds the limit (4300 digits) for integer string conversion: ` +
			`value has 4301 digits; use sys.set_int_max_str_digits() to increase the limit`,
	} {
		_, _, fault := Int(parse(t, in))
		require.EqualError(t, fault, want, in)
	}
	_, ok, fault := Int(pyjson.String("５"))
	require.False(t, ok, "digits of other scripts are left to the instance")
	require.Nil(t, fault)
}

func TestPythonFloat(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`1`: `1.0`, `1.5`: `1.5`, `1e1`: `1e1`, `true`: `1.0`, `"1e3"`: `1000.0`, `" .5 "`: `0.5`, `"5."`: `5.0`,
		`"1_0.0_1"`: `10.01`, `"nan"`: `NaN`, `"-Inf"`: `-Infinity`, `"+infinity"`: `Infinity`, `"1e999"`: `Infinity`, `"-1E-400"`: `-0.0`,
	} {
		n, ok, fault := Float(parse(t, in))
		require.Nil(t, fault, in)
		require.True(t, ok, in)
		require.Equal(t, want, string(n), in)
	}
	for in, want := range map[string]string{
		`"abc"`:                        `ValueError: could not convert string to float: 'abc'`,
		`""`:                           `ValueError: could not convert string to float: ''`,
		`"."`:                          `ValueError: could not convert string to float: '.'`,
		`"0x1"`:                        `ValueError: could not convert string to float: '0x1'`,
		`"1e"`:                         `ValueError: could not convert string to float: '1e'`,
		`"1_"`:                         `ValueError: could not convert string to float: '1_'`,
		`null`:                         `TypeError: float() argument must be a string or a real number, not 'NoneType'`,
		`[1]`:                          `TypeError: float() argument must be a string or a real number, not 'list'`,
		"1" + strings.Repeat("0", 400): `OverflowError: int too large to convert to float`,
	} {
		_, _, fault := Float(parse(t, in))
		require.EqualError(t, fault, want, in)
	}
}

func TestPythonComparison(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b  string
		equal bool
	}{
		{`1`, `1.0`, true},
		{`true`, `1`, true},
		{`1`, `"1"`, false},
		{`NaN`, `NaN`, false},
		{`null`, `null`, true},
		{`null`, `0`, false},
		{`9007199254740993`, `9007199254740992.0`, false},
		{`18446744073709551616`, `18446744073709551616.0`, true},
		{`{"a": 1, "b": [true]}`, `{"b": [1], "a": 1.0}`, true},
		{`[1]`, `[1, 2]`, false},
		{`"a"`, `"a"`, true},
	} {
		require.Equal(t, tt.equal, Equal(parse(t, tt.a), parse(t, tt.b)), "%s == %s", tt.a, tt.b)
		require.Equal(t, tt.equal, Equal(parse(t, tt.b), parse(t, tt.a)), "%s == %s", tt.b, tt.a)
	}
	less, fault := Less(parse(t, `18446744073709551614`), parse(t, `18446744073709551615`), "<")
	require.Nil(t, fault)
	require.True(t, less, "seeds are compared exactly")
	less, fault = Less(parse(t, `NaN`), parse(t, `0`), "<")
	require.Nil(t, fault)
	require.False(t, less)
	_, fault = Less(parse(t, `"x"`), parse(t, `0`), "<")
	require.EqualError(t, fault, "TypeError: '<' not supported between instances of 'str' and 'int'")
	_, fault = Less(parse(t, `null`), parse(t, `0.5`), ">")
	require.EqualError(t, fault, "TypeError: '>' not supported between instances of 'NoneType' and 'float'")
}

func TestTruthy(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		`null`: false, `false`: false, `0`: false, `-0.0`: false, `""`: false, `[]`: false, `{}`: false,
		`true`: true, `0.1`: true, `NaN`: true, `"false"`: true, `[0]`: true, `{"a": 0}`: true,
	} {
		require.Equal(t, want, Bool(parse(t, in)), in)
	}
}
