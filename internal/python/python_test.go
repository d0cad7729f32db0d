package python

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
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

// script answers each line, a JSON list of two values, with what Python makes
// of them, and with null where Python cannot even read them.
const script = `
import json, sys, unicodedata

def outcome(f):
    try:
        return f()
    except Exception as e:
        return type(e).__name__ + ": " + str(e)

def answer(a, b):
    return [type(a).__name__, str(a), repr(a), bool(a), outcome(lambda: str(int(a))), outcome(lambda: repr(float(a))),
            a == b, outcome(lambda: a < b), outcome(lambda: a > b)]

if sys.version_info < (3, 11):
    sys.exit()
print(json.dumps(unicodedata.unidata_version), flush=True)
for line in sys.stdin:
    try:
        # Each NaN is an object of its own: Python finds one in a list by identity.
        a, b = json.loads(line, parse_constant=float)
        if any(unicodedata.category(c) == "Cn" for c in str(a)):
            raise ValueError("Go may know a character that this Python does not")
        print(json.dumps(answer(a, b)), flush=True)
    except Exception:
        print("null", flush=True)
`

// interpreter is a python3 that runs the script.
type interpreter struct {
	t   testing.TB
	in  io.Writer
	out *bufio.Reader
}

// startPython starts python3. A test is skipped where there is none, and where
// it is older than 3.11, whose texts the package has.
func startPython(t testing.TB) *interpreter {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	cmd := exec.CommandContext(t.Context(), path, "-c", script)
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	p := &interpreter{t, in, bufio.NewReader(out)}
	if _, err := p.out.ReadString('\n'); err != nil {
		t.Skip("python3 is older than 3.11")
	}
	return p
}

// check compares this package with Python on a pair of values.
func (p *interpreter) check(t *testing.T, a, b pyjson.Value) {
	t.Helper()
	line := pyjson.Marshal(pyjson.Array{a, b})
	_, err := p.in.Write(append(line, '\n'))
	require.NoError(t, err)
	text := must.Get(p.out.ReadBytes('\n'))(t)
	reply := must.Get(pyjson.Parse(text))(t)
	want, ok := reply.(pyjson.Array)
	if !ok || hasUnassigned(string(text)) {
		return
	}
	texts := pyjson.Array{pyjson.String(TypeName(a)), pyjson.String(Str(a)), pyjson.String(Repr(a)), pyjson.Bool(Bool(a))}
	for i, got := range texts {
		require.Equal(t, want[i], got, "%s", line)
	}
	if n, ok, fault := Int(a); ok || fault != nil {
		require.Equal(t, want[4], outcome(pyjson.String(Repr(n)), fault), "int of %s", line)
	}
	if n, ok, fault := Float(a); ok || fault != nil {
		require.Equal(t, want[5], outcome(pyjson.String(Repr(n)), fault), "float of %s", line)
	}
	require.Equal(t, want[6], pyjson.Bool(Equal(a, b)), "== of %s", line)
	_, isList := a.(pyjson.Array)
	_, both := b.(pyjson.Array)
	if isList && both {
		return // see Less
	}
	for i, operator := range []string{"<", ">"} {
		less, fault := Less(a, b, operator)
		require.Equal(t, want[7+i], outcome(pyjson.Bool(less), fault), "%s of %s", operator, line)
	}
}

func outcome(v pyjson.Value, fault *Exception) pyjson.Value {
	if fault != nil {
		return pyjson.String(fault.Error())
	}
	return v
}

// hasUnassigned reports a character that Python may know and Go does not.
func hasUnassigned(s string) bool {
	for i := 0; i < len(s); {
		r, size := pyjson.DecodeRune(s[i:])
		if !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs) {
			return true
		}
		i += size
	}
	return false
}

// samples are the JSON texts whose pairs are compared with Python.
func samples() []string {
	return []string{
		`null`, `true`, `false`, `0`, `-0`, `1`, `-1`, `7.0`, `-0.0`, `0.1`, `1.5`, `-3.9`, `1e3`, `1e15`, `1e16`, `1e22`, `1e-4`, `1e-5`, `1e999`, `5e-324`, `1.7976931348623157e308`,
		`NaN`, `Infinity`, `-Infinity`, `9007199254740993`, `9007199254740992.0`, `18446744073709551615`, `18446744073709551616.0`, `123456789012345678901234567890`, "1" + strings.Repeat("0", 400),
		`""`, `" "`, `"a"`, `"b"`, `"True"`, `"5"`, `" 12\n"`, `"+7"`, `"-0"`, `"007"`, `"1_000"`, `"1__0"`, `"_1"`, `"1_"`, `"+-1"`, `"- 1"`, `"0x10"`, `"3.7"`, `"\u00a05\u2028"`, `"5\u001c"`, `"\u001f5"`, `"5\u0000"`,
		`"\u00855"`, `".5"`, `" .5 "`, `"5."`, `"."`, `"1_0.0_1"`, `"1_.0"`, `"1._0"`, `"1e5"`, `"1E+05"`, `"1e"`, `"1e_5"`, `"nan"`, `"-NaN"`, `"+nan"`, `"inf"`, `"-Infinity"`, `"infi"`, `"+"`, `"1e999"`, `"-1e-400"`, `"\u0131nf"`, `"\u0130nf"`, `"\u212anf"`,
		`"it's"`, `"it's \"x\""`, `"\"x\""`, `"a\\b\n\t\r"`, `"\u0000\u007f\u00a0\u00ad\u00e9\u2028\u4e2d"`, `"\ud83d\ude00\ud800"`, `"\ue000\udbff\udfff\ufeff\ufffd"`, `"\uff15"`,
		`"` + strings.Repeat("é'", 150) + `"`, `"` + strings.Repeat("\\u00a0\\t", 150) + `x"`, `"` + strings.Repeat("1", 4301) + `"`,
		`[]`, `[0]`, `[1, "x", [], {"a": null}]`, `{}`, `{"a": 1, "b": [true]}`, `{"b": [1], "a": 1.0}`, `{"it's": NaN}`,
	}
}

func TestAgainstPython(t *testing.T) {
	t.Parallel()
	p := startPython(t)
	for _, a := range samples() {
		for _, b := range samples() {
			p.check(t, parse(t, a), parse(t, b))
		}
	}
}

// FuzzAgainstPython compares pairs of JSON texts, and the texts themselves as
// strings: those of numbers are parsed.
func FuzzAgainstPython(f *testing.F) {
	all := samples()
	for i, a := range all {
		f.Add(a, all[(i+1)%len(all)])
	}
	p := startPython(f)
	f.Fuzz(func(t *testing.T, a, b string) {
		// As JSON, a string that is not UTF-8 is what both sides read.
		text := parse(t, string(pyjson.AppendString(nil, a)))
		p.check(t, text, text)
		x, errX := pyjson.Parse([]byte(a))
		y, errY := pyjson.Parse([]byte(b))
		if errX == nil && errY == nil {
			p.check(t, x, y)
		}
	})
}
