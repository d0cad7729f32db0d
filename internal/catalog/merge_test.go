package catalog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// loader is an object_info with one loader class in either style of combo.
func loader(listStyle bool, names ...string) string {
	list := marshal(pyjson.Strings(names))
	spec := `["COMBO", {"tooltip": "t", "options": ` + list + `, "extra": NaN}]`
	if listStyle {
		spec = `[` + list + `, {"tooltip": "t"}]`
	}
	return `{"Loader": {"input": {"required": {"strength": ["FLOAT", {"min": 0.0}], "name": ` + spec + `}, "hidden": {"id": "UNIQUE_ID"}}, ` +
		`"input_order": {"required": ["strength", "name"]}, "output": ["MODEL"], "output_node": false, "python_module": "nodes"}}`
}

func TestMergeUnitesOptions(t *testing.T) {
	t.Parallel()
	for _, listStyle := range []bool{true, false} {
		cat := fleet(
			parseInfo(t, loader(listStyle, "b", `sub\a.pt`)),
			parseInfo(t, loader(listStyle, "c", "sub/a.pt", "b")),
			parseInfo(t, loader(!listStyle, "d", "b")),
		)
		want := loader(listStyle, "b", `sub\a.pt`, "c", "d")
		require.Equal(t, want, string(cat.ObjectInfo(nil).Body()), "order of the first, then what is new; its style; nothing else changed")
		require.Equal(t, want, string(cat.Class("Loader", nil).Body()))
		require.Equal(t, "{}", string(cat.Class("None", nil).Body()))
	}
}

func TestMergeKeepsTheBytesOfOne(t *testing.T) {
	t.Parallel()
	for _, v := range []release{older, newer} {
		body := infoBody(t, v)
		require.Equal(t, string(body), string(fleet(info(t, v), info(t, v)).ObjectInfo(nil).Body()))
	}
}

func TestMergePrefersTheMostCommon(t *testing.T) {
	t.Parallel()
	class := func(input string) string {
		return `{"A": {"input": {"required": {"` + input + `": ["INT", {}]}}, "output": [], "output_node": true, "python_module": "nodes"}}`
	}
	first, second := parseInfo(t, class("x")), parseInfo(t, class("y"))
	shown := func(sources ...catalog.Source) string {
		return string(catalog.Merge(nil, sources).Class("A", nil).Body())
	}
	x, y := catalog.Source{Info: first}, catalog.Source{Info: second}
	gone := catalog.Source{Info: second, Absent: true}
	require.Equal(t, class("x"), shown(x, y), "the first of equals")
	require.Equal(t, class("y"), shown(x, y, y))
	require.Equal(t, class("x"), shown(gone, gone, x), "one that is there counts for more than any that left")
	require.Equal(t, class("y"), shown(gone), "what left is remembered")
}

func TestVariants(t *testing.T) {
	t.Parallel()
	class := func(bounds string) string {
		return `{"A":{"input":{"required":{"n":["INT",` + bounds + `]}},"output":["X"],"output_node":true,"python_module":"nodes"}}`
	}
	small, large := parseInfo(t, class(`{"max":10}`)), parseInfo(t, class(`{"max":100}`))
	cat := fleet(small, small, large)
	needs := func(n string) catalog.Requirements {
		verdict := validate(t, cat, newer, `{"1":{"class_type":"A","inputs":{"n":`+n+`}}}`)
		require.True(t, verdict.Accepted(), "some instance can run it")
		return cat.Requirements(verdict.Graph, verdict.Outputs, nil)
	}
	r := needs("5")
	require.Empty(t, r.Variants, "both can")
	require.Empty(t, small.Satisfies(r))
	require.Empty(t, large.Satisfies(r))
	r = needs("50")
	require.Equal(t, []string{"another version of node class A"}, small.Satisfies(r))
	require.Empty(t, large.Satisfies(r))
	require.False(t, validate(t, cat, newer, `{"1":{"class_type":"A","inputs":{"n":500}}}`).Accepted())
}

func TestVariantsThatIgnoreInputs(t *testing.T) {
	t.Parallel()
	old := parseInfo(t, `{"A":{"input":{"required":{"n":["INT",{}]}},"output":[],"output_node":true,"python_module":"nodes"}}`)
	later := parseInfo(t, `{"A":{"input":{"required":{"n":["INT",{}]},"optional":{"extra":["INT",{}]}},"output":[],"output_node":true,"python_module":"nodes"}}`)
	cat := fleet(old, old, later)
	r := cat.Requirements(parseGraph(t, `{"1":{"class_type":"A","inputs":{"n":1,"extra":2}}}`), nil, nil)
	require.NotEmpty(t, old.Satisfies(r), "it would run without the input that was given")
	require.Empty(t, later.Satisfies(r))
	r = cat.Requirements(parseGraph(t, `{"1":{"class_type":"A","inputs":{"n":1}}}`), nil, nil)
	require.NotEmpty(t, r.Classes)
	require.Empty(t, old.Satisfies(r))
	require.Empty(t, later.Satisfies(r))
}

func TestMergeTakesOver(t *testing.T) {
	t.Parallel()
	library := catalog.NewLibrary()
	parse := func(body string) *catalog.Info {
		i, err := library.Parse([]byte(body))
		require.NoError(t, err)
		return i
	}
	a, b, c := parse(loader(true, "a")), parse(loader(true, "b")), parse(loader(true, "c"))
	before := catalog.Merge(nil, []catalog.Source{{Info: a}, {Info: b}})
	same := catalog.Merge(before, []catalog.Source{{Info: a}, {Info: b}, {Info: b, Absent: true}})
	require.Equal(t, before.ObjectInfo(nil).ETag, same.ObjectInfo(nil).ETag)
	after := catalog.Merge(same, []catalog.Source{{Info: a}, {Info: b}, {Info: c}})
	require.NotEqual(t, before.ObjectInfo(nil).ETag, after.ObjectInfo(nil).ETag)
	require.Equal(t, loader(true, "a", "b", "c"), string(after.ObjectInfo(nil).Body()))
	require.Equal(t, loader(true, "a", "b"), string(before.ObjectInfo(nil).Body()), "a catalog does not change")
}

func TestUploads(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	plain, shown := cat.ObjectInfo(nil), cat.ObjectInfo(catalog.Uploads{"mine.PNG", "a.mp4", "sub/x.png", "3d/m.glb", "b.flac"})
	require.NotEqual(t, plain.ETag, shown.ETag)
	v, err := pyjson.Parse(shown.Body())
	require.NoError(t, err)
	spec := func(class, input string) string {
		return marshal(v.(*pyjson.Object).Object(class).Object("input").Object("required").Array(input))
	}
	require.Contains(t, spec("LoadImage", "image"), `"l599789.png", "mine.PNG", "u599788 (1).png"`, "in order, as a folder is listed")
	require.True(t, strings.HasPrefix(spec("LoadImageMask", "image"), `[["a.mp4", "b.flac", "broken.png"`), spec("LoadImageMask", "image"))
	require.Equal(t, `["COMBO", {"multiselect": false, "options": ["a.mp4"], "video_upload": true}]`, spec("LoadVideo", "file"))
	require.Contains(t, spec("LoadAudio", "audio"), `["a.mp4", "b.flac"]`)
	require.Contains(t, spec("Load3D", "model_file"), `["3d/m.glb", "none"]`)
	require.NotContains(t, spec("LoadImageOutput", "image"), "mine", "lists the output folder")
	require.Contains(t, string(cat.Class("LoadImage", catalog.Uploads{"a.png"}).Body()), `{"LoadImage": {"input": {"required": {"image": [["a.png", "broken.png"`)

	before, err := pyjson.Parse(plain.Body())
	require.NoError(t, err)
	for name, class := range before.(*pyjson.Object).All() {
		changed, _ := v.(*pyjson.Object).Get(name)
		if !strings.HasPrefix(name, "Load") {
			require.True(t, pyjson.Equal(class, changed), name)
		}
	}
}

func TestEmptyObjectInfo(t *testing.T) {
	t.Parallel()
	var none *catalog.Catalog
	require.Equal(t, "{}", string(none.ObjectInfo(nil).Body()))
	require.Equal(t, "{}", string(none.Class("A", nil).Body()))
	require.Empty(t, none.Classes())
}

func TestParseIsTolerant(t *testing.T) {
	t.Parallel()
	i := parseInfo(t, ` {"A":{"input":{"required":{"x":["FLOAT",{"default":NaN,"max":Infinity}],"odd":"INT","odder":[],"oddest":{"a":1},"n":[5]}},"output":["X"]},
		"B":null,"C":{"input":5},"D":{"input":{},"output":1}} `)
	require.Equal(t, 2, i.Classes())
	require.Equal(t, []string{"B", "C"}, i.Skipped())
	require.True(t, i.Has("D"))
	for _, bad := range []string{``, `[]`, `{"A":`, `{"A":{}} x`, `{"A" {}}`, `{"a":}`, `{,}`, `null`} {
		_, err := catalog.Parse([]byte(bad))
		require.Error(t, err, bad)
	}
}

func FuzzParseInfo(f *testing.F) {
	f.Add([]byte(custom), []byte(loader(true, "a")))
	f.Add([]byte(loader(false, `a\b`, "c")), []byte(`{"Loader":{"input":{"optional":{"name":[[1,true,"a/b"]]}},"output_node":true}}`))
	f.Add([]byte(`{"X":{"input":{"required":{"a":["COMFY_DYNAMICCOMBO_V3",{"options":[{"key":"k","inputs":{"required":{"b":["COMFY_AUTOGROW_V3",{"template":{"prefix":"p","min":2,"input":{"required":{"i":["INT",{"min":"x"}]}}}}]}}}]}]}}}}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		first, errA := catalog.Parse(a)
		second, errB := catalog.Parse(b)
		if errA != nil || errB != nil {
			return
		}
		cat := fleet(first, second)
		again, err := catalog.Parse(cat.ObjectInfo(catalog.Uploads{"u.png"}).Body())
		if err != nil || again.Classes() != len(cat.Classes()) {
			t.Fatalf("the merge of %q and %q is %q: %v", a, b, cat.ObjectInfo(nil).Body(), err)
		}
		for _, name := range cat.Classes() {
			graph := pyjson.NewObject(pyjson.Member{Key: "1", Value: pyjson.NewObject(
				pyjson.Member{Key: "class_type", Value: pyjson.String(name)},
				pyjson.Member{Key: "inputs", Value: pyjson.NewObject(
					pyjson.Member{Key: "a", Value: pyjson.String("k")}, pyjson.Member{Key: "a.b.p0", Value: pyjson.Int(1)},
					pyjson.Member{Key: "name", Value: pyjson.String("c")})},
			)})
			g, err := catalog.ParseGraph(pyjson.Marshal(graph))
			if err != nil {
				t.Fatal(err)
			}
			verdict := cat.Validate(catalog.Prompt{Graph: g, Version: newer})
			if verdict.Accepted() {
				cat.Requirements(verdict.Graph, verdict.Outputs, nil)
			}
		}
	})
}
