package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
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
	parse := func(body string) *catalog.Info { return must.Get(library.Parse([]byte(body)))(t) }
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
	v := must.Get(pyjson.Parse(shown.Body()))(t)
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

	before := must.Get(pyjson.Parse(plain.Body()))(t)
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

// A refusal speaks for another instance only where nothing but the description
// of the class and the inputs can be its reason.
func TestRefusesAlike(t *testing.T) {
	t.Parallel()
	const described = `{"Load":{"input":{"required":{"file":[["a.pt","b.pt"],{}],"mode":[["fast","slow"],{}],"n":["INT",{"min":0,"max":9}]},
"optional":{"text":["STRING",{}]}},"output":["THING"],"output_node":false,"python_module":"custom_nodes.pack"},
"Show":{"input":{"required":{"thing":["OTHER",{}]}},"output":[],"output_node":true,"python_module":"custom_nodes.pack"}}`
	const inputs = `"n":10,"mode":"odd"`
	const own = "custom_validation_failed"
	for name, c := range map[string]struct {
		inputs string // of the node of class Load
		errors string
		other  string // what differs at the other instance
		want   bool
	}{
		"a bound":                        {errors: refusals("1", "Load", "value_bigger_than_max", `{"input_name": "n"}`), want: true},
		"a bound beside a file":          {inputs: `"n":10,"file":"c.pt"`, errors: refusals("1", "Load", "value_bigger_than_max", `{"input_name": "n"}`), want: true},
		"a link":                         {errors: refusals("2", "Show", "return_type_mismatch", `{"input_name": "thing"}`), want: true},
		"an option":                      {errors: refusals("1", "Load", "value_not_in_list", `{"input_name": "mode"}`), want: true},
		"a file":                         {inputs: `"file":"c.pt"`, errors: refusals("1", "Load", "value_not_in_list", `{"input_name": "file"}`)},
		"an input that was not given":    {errors: refusals("1", "Load", "value_not_in_list", `{"input_name": "file"}`)},
		"its own code, with numbers":     {inputs: `"n":1,"mode":"fast"`, errors: refusals("1", "Load", own, `{}`), want: true},
		"its own code, with a file":      {inputs: `"n":1,"file":"a.pt"`, errors: refusals("1", "Load", own, `{}`)},
		"its own code, with a text":      {inputs: `"n":1,"text":"/data/video"`, errors: refusals("1", "Load", own, `{}`)},
		"its own code, with a list":      {inputs: `"n":["a"]`, errors: refusals("1", "Load", own, `{}`)},
		"its own code, with more inputs": {inputs: `"n":1,"hidden":"x"`, errors: refusals("1", "Load", own, `{}`)},
		"its own code, with a link":      {errors: refusals("2", "Show", own, `{}`), want: true},
		"another description":            {errors: refusals("1", "Load", "value_bigger_than_max", `{}`), other: `"max":9`},
		"another source of a link":       {errors: refusals("2", "Show", "return_type_mismatch", `{}`), other: `"max":9`},
		"another class differs":          {errors: refusals("1", "Load", "value_bigger_than_max", `{}`), other: `"OTHER"`, want: true},
		"the class is not there":         {errors: refusals("1", "Load", "value_bigger_than_max", `{}`), other: `"Load"`},
		"an unknown class":               {errors: refusals("1", "Nope", "value_bigger_than_max", `{}`)},
		"another node":                   {errors: refusals("7", "Load", "value_bigger_than_max", `{}`)},
		"one good reason of two": {errors: strings.TrimSuffix(refusals("1", "Load", "value_bigger_than_max", `{}`), "}") + "," +
			strings.TrimPrefix(refusals("2", "Nope", own, `{}`), "{")},
		"no reason":        {errors: `{"1": {"errors": [], "class_type": "Load"}}`},
		"nothing":          {errors: `{}`},
		"a list of nodes":  {errors: `[]`},
		"half an object":   {errors: `{"1": `},
		"errors of nobody": {errors: `{"1": {"errors": [null], "class_type": "Load"}}`, inputs: `"text":"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.inputs == "" {
				c.inputs = inputs
			}
			other := described
			if c.other != "" {
				other = strings.Replace(described, c.other, strings.NewReplacer("9", "8", "OTHER", "THIRD", "Load", "Gone").Replace(c.other), 1)
				require.NotEqual(t, described, other)
			}
			graph := `{"1":{"class_type":"Load","inputs":{` + c.inputs + `}},"2":{"class_type":"Show","inputs":{"thing":["1",0]}}}`
			require.Equal(t, c.want, parseInfo(t, described).RefusesAlike(parseInfo(t, other), []byte(graph), []byte(c.errors)))
		})
	}
}

// infoOf is an answer of GET /object_info: classes as "module/Class", each with an
// input that offers files.
func infoOf(t *testing.T, classes map[string][]string) *catalog.Info {
	t.Helper()
	var parts []string
	for name, files := range classes {
		module, class, _ := strings.Cut(name, "/")
		quoted := make([]string, len(files))
		for n, f := range files {
			quoted[n] = fmt.Sprintf("%q", f)
		}
		parts = append(parts, fmt.Sprintf(`%q: {"input": {"required": {"file": [[%s]], "upload": [["x.png", %q], {"image_upload": true}]}}, "output": [], "python_module": %q}`,
			class, strings.Join(quoted, ","), class+"-own.png", module))
	}
	return must.Get(catalog.Parse([]byte("{" + strings.Join(parts, ",") + "}")))(t)
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	same := infoOf(t, map[string][]string{"nodes/Loader": {"a.safetensors", "normal"}, "custom_nodes.Pack/One": nil, "custom_nodes.Pack/Two": nil})
	require.Empty(t, catalog.Differences(nil))
	require.Empty(t, catalog.Differences(map[string]*catalog.Info{"a": same, "b": same}))
	other := infoOf(t, map[string][]string{"nodes/Loader": {"a.safetensors", "b.safetensors", "karras"}, "nodes/Newer": nil, "custom_nodes.Pack/One": nil, "comfy_extras.nodes_x/Loader2": {"b.safetensors"}})
	bare := infoOf(t, map[string][]string{"nodes/Loader": {"a.safetensors"}})
	require.Equal(t, []catalog.Difference{
		{Kind: "package", Name: "Pack", Have: []string{"g1", "g2", "g3"}, Lack: []string{"g4"}},
		{Kind: "class", Name: "Loader2", Of: "ComfyUI", Have: []string{"g3"}, Lack: []string{"g1", "g2", "g4"}},
		{Kind: "class", Name: "Newer", Of: "ComfyUI", Have: []string{"g3"}, Lack: []string{"g1", "g2", "g4"}},
		{Kind: "class", Name: "Two", Of: "Pack", Have: []string{"g1", "g2"}, Lack: []string{"g3"}},
		{Kind: "file", Name: "b.safetensors", Of: "Loader.file", Have: []string{"g3"}, Lack: []string{"g1", "g2", "g4"}},
	}, catalog.Differences(map[string]*catalog.Info{"g1": same, "g2": same, "g3": other, "g4": bare}),
		"options that are no models, and uploads, do not count")
}

// Instances that may not have API keys neither turn the need for one on nor off.
func TestAPINodes(t *testing.T) {
	t.Parallel()
	says := func(paid string) *catalog.Info {
		return parseInfo(t, `{"Paid":{"input":{"required":{}},"output":["IMAGE"],"output_node":true,"api_node":`+paid+`},
			"Plain":{"input":{"required":{}},"output":["IMAGE"],"output_node":true,"api_node":false}}`)
	}
	none := parseInfo(t, `{"Other":{"input":{"required":{}}}}`)
	trusted := func(paid string) *catalog.Info { return says(paid).WithSecrets(true) }
	graph := parseGraph(t, `{"2":{"class_type":"Plain","inputs":{}},"1":{"class_type":"Paid","inputs":{}},"3":{"class_type":"Nowhere","inputs":{}}}`)
	for name, tt := range map[string]struct {
		infos []*catalog.Info
		paid  bool
	}{
		"nobody":                              {nil, false},
		"a trusted one":                       {[]*catalog.Info{trusted("true")}, true},
		"a trusted one denies it":             {[]*catalog.Info{trusted("false")}, false},
		"one of two trusted ones":             {[]*catalog.Info{trusted("false"), trusted("true")}, true},
		"a liar turns it on":                  {[]*catalog.Info{says("true"), trusted("false")}, false},
		"a liar turns it off":                 {[]*catalog.Info{says("false"), trusted("true")}, true},
		"all others, where no trusted has it": {[]*catalog.Info{says("true"), says("true"), none.WithSecrets(true)}, true},
		"not all others":                      {[]*catalog.Info{says("true"), says("false"), none}, false},
		"another value":                       {[]*catalog.Info{trusted(`"true"`)}, false},
		"a number":                            {[]*catalog.Info{trusted("1")}, false},
	} {
		want := []string(nil)
		if tt.paid {
			want = []string{"1"}
		}
		require.Equal(t, want, catalog.APINodes(graph, nil, tt.infos), name)
		require.Equal(t, want, catalog.APINodes(graph, []string{"1"}, tt.infos), name)
		require.Empty(t, catalog.APINodes(graph, []string{"2"}, tt.infos), "the outputs do not need it")
	}
}

func TestHasSecret(t *testing.T) {
	t.Parallel()
	for secrets, want := range map[string]bool{
		``: false, `{}`: false, `{"api_key_comfy_org": null}`: false, `{"api_key_comfy_org": ""}`: false,
		`{"auth_token_comfy_org": null, "api_key_comfy_org": "k"}`: true, `[]`: false, `{"auth_token_comfy_org": "t"}`: true,
	} {
		require.Equal(t, want, catalog.HasSecret([]byte(secrets)), secrets)
	}
}

// A job that needs its key finds only instances that may have it, and a hub that does not know
// of this leaves it to others.
func TestRequiredSecrets(t *testing.T) {
	t.Parallel()
	info := parseInfo(t, sampling(`"euler"`, `"x.pt"`))
	r := catalog.Requirements{Classes: []string{"Sample"}, Secrets: true}
	require.Equal(t, r, must.Get(catalog.DecodeRequirements(r.Encode()))(t))
	require.Contains(t, string(r.Encode()), `"v": 2`)
	require.Len(t, info.Satisfies(r), 1)
	require.Empty(t, info.WithSecrets(true).Satisfies(r))
	require.NotEqual(t, info.Profile(), info.WithSecrets(true).Profile())
	require.Equal(t, info.Profile(), info.WithSecrets(true).WithSecrets(false).Profile())
}
