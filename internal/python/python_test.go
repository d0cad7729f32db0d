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

// Digits of other scripts are left to the instance.
func TestDigitsOfOtherScripts(t *testing.T) {
	t.Parallel()
	_, ok, fault := Int(pyjson.String("５"))
	require.False(t, ok)
	require.Nil(t, fault)
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
	// What is not known is left to the instance.
	otherScript := strings.ContainsFunc(Str(a), func(r rune) bool { return unicode.IsDigit(r) && r > unicode.MaxASCII })
	n, ok, fault := Int(a)
	require.True(t, ok || fault != nil || otherScript, "int of %s", line)
	if ok || fault != nil {
		require.Equal(t, want[4], outcome(pyjson.String(Repr(n)), fault), "int of %s", line)
	}
	n, ok, fault = Float(a)
	require.True(t, ok || fault != nil || otherScript, "float of %s", line)
	if ok || fault != nil {
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
