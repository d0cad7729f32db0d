package catalog

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func (l *Library) sizes() (infos, classes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.infos), len(l.classes)
}

func TestLibrarySharesAndForgets(t *testing.T) {
	t.Parallel()
	const (
		common = `"A":{"input":{"required":{"x":["INT",{}]}},"output":[]}`
		first  = `{` + common + `,"B":{"input":{"required":{"m":[["a"]]}}}}`
		second = `{` + common + `,"B":{"input":{"required":{"m":[["b"]]}}}}`
	)
	l := NewLibrary()
	parse := func(body string) *Info { return must.Get(l.Parse([]byte(body)))(t) }
	a, again, b := parse(first), parse(first), parse(second)
	require.Same(t, a, again, "equal bodies are one info")
	require.Same(t, a.classes["A"], b.classes["A"], "equal classes are one class")
	require.NotSame(t, a.classes["B"], b.classes["B"])
	infos, classes := l.sizes()
	require.Equal(t, []int{2, 3}, []int{infos, classes})

	runtime.KeepAlive(b)
	b = nil
	require.Eventually(t, func() bool {
		runtime.GC()
		infos, classes := l.sizes()
		return infos == 1 && classes == 2
	}, time.Minute, time.Millisecond, "what no info uses is forgotten")
	require.NotSame(t, a, parse(second))
	runtime.KeepAlive(a)
}

// What an instance describes without end is left out; the rest is not.
func TestImmoderateClassesAreLeftOut(t *testing.T) {
	t.Parallel()
	one := `{"input": {"required": {}}, "output": [], "output_name": [], "name": "B", "output_node": false}`
	body := `{"A": [` + strings.Repeat("{},", maxClass/3) + `{}], "B": ` + one + `}`
	info := must.Get(Parse([]byte(body)))(t)
	require.Equal(t, []string{"A"}, info.Skipped())
	require.Equal(t, 1, info.Classes())
}

func testClass(t *testing.T, inputs string) *class {
	t.Helper()
	return must.Get(parseClass("T", []byte(`{"input":{"required":`+inputs+`},"output":[]}`), digest{}))(t)
}

// shown lists inputs as name, with "?" for the optional ones.
func shown(list []*input) string {
	var names []string
	for _, in := range list {
		name := in.name
		if !in.required {
			name += "?"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func TestDynamicInputs(t *testing.T) {
	t.Parallel()
	const grow = `["COMFY_AUTOGROW_V3",{"template":{"prefix":"i","min":1,"max":3,"input":{"required":{"x":["IMAGE",{}]}}}}]`
	const named = `["COMFY_AUTOGROW_V3",{"template":{"names":["p","q"],"min":0,"input":{"optional":{"x":["COMBO",{"options":["m"]}]}}}}]`
	const combo = `["COMFY_DYNAMICCOMBO_V3",{"options":[{"key":"one","inputs":{"required":{"w":["COMBO",{"options":["a"]}],"g":` + grow + `},"optional":{"o":["INT",{}]}}},
		{"key":2,"inputs":{"required":{"w":["COMBO",{"options":["b"]}]}}}]}]`
	c := testClass(t, `{"first":["INT",{}],"d":`+combo+`,"n":`+named+`,"s":["COMFY_DYNAMICSLOT_V3",{}],"last":["INT",{}]}`)
	for values, want := range map[string]string{
		`{}`:                              "first d s? last",
		`{"d":"one"}`:                     "first d d.w d.g.i0 d.o? s? last",
		`{"d":"one","d.g.i2":["1",0]}`:    "first d d.w d.g.i0 d.g.i2? d.o? s? last",
		`{"d":2.0,"n.q":"m","n.z":"m"}`:   "first d d.w n.q? s? last",
		`{"d":["1",0]}`:                   "first d s? last",
		`{"d":"unknown","d.w":"a"}`:       "first d s? last",
		`{"d":"one","d.g":5,"n":["1",0]}`: "first d d.w d.g.i0 d.o? s? last",
	} {
		require.Equal(t, want, shown(c.live(parse(t, values).(*pyjson.Object))), values)
	}
	loose := testClass(t, `{"a":`+strings.Replace(grow, `"required"`, `"optional"`, 1)+`}`)
	require.Empty(t, shown(loose.live(&pyjson.Object{})), "what the template calls optional is never missing")
	whole := must.Get(parseClass("T", []byte(`{"input":{"optional":{"a":`+grow+`}}}`), digest{}))(t)
	require.Empty(t, shown(whole.live(&pyjson.Object{})), "nor is what belongs to an optional input")
	require.Equal(t, []string{"a", "b"}, c.find("d.w").options.keys(), "of all options together")
	require.Equal(t, "IMAGE", c.find("d.g.i7").kind)
	require.Equal(t, []string{"m"}, c.find("n.p").options.keys())
	require.Nil(t, c.find("d.none"))
	require.Nil(t, c.find("first.x"))
	require.Nil(t, c.find("none"))
}

func TestDynamicInputsDoNotMultiply(t *testing.T) {
	t.Parallel()
	spec := `["INT",{}]`
	for range 12 {
		spec = `["COMFY_AUTOGROW_V3",{"template":{"prefix":"i","min":1000,"max":1000,"input":{"required":{"x":` + spec + `}}}}]`
	}
	list := testClass(t, `{"d":`+spec+`}`).live(&pyjson.Object{})
	require.LessOrEqual(t, len(list), maxExpansions)
}

func TestLooksLikeFile(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a.safetensors": true, "sub/model": true, `sub\model`: true, "a.b.gguf": true, "x.7z": true,
		"euler": false, "1.5": false, "16:9 (1.5)": false, ".hidden": false, "end.": false, "A text. With words": false,
	} {
		require.Equal(t, want, looksLikeFile(pyjson.String(name)), name)
	}
	require.False(t, looksLikeFile(pyjson.Number("1.5")))
}

func TestOptions(t *testing.T) {
	t.Parallel()
	o := newOptions(parse(t, `["1", 2, 2.5, true, "sub\\a", null]`).(pyjson.Array))
	for value, want := range map[string]bool{
		`"1"`: true, `1`: true, `2`: true, `2.0`: true, `"2"`: false, `2.5`: true, `3`: false, `"sub/a"`: true, `"sub\\a"`: true, `null`: true, `"null"`: false, `["1"]`: false,
	} {
		require.Equal(t, want, o.has(parse(t, value)), value) // 1 is there as true
	}
	var none *options
	require.False(t, none.has(pyjson.String("x")))
	require.Empty(t, none.keys())
}

func parse(tb testing.TB, raw string) pyjson.Value {
	tb.Helper()
	v, err := pyjson.Parse([]byte(raw))
	require.NoError(tb, err, raw)
	return v
}
