package catalog_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func validate(t *testing.T, cat *catalog.Catalog, v release, graph string) *catalog.Verdict {
	t.Helper()
	return cat.Validate(catalog.Prompt{Graph: parseGraph(t, graph), Version: v})
}

// image wraps nodes into a graph whose node "9" saves the image of node "1".
func image(nodes string) string {
	return `{` + nodes + `,"9":{"class_type":"SaveImage","inputs":{"images":["1",0],"filename_prefix":"t"}}}`
}

func TestCoercion(t *testing.T) {
	t.Parallel()
	sent := `{"1" : {"inputs":{"image":["2", 0],"upscale_method":{"__value__":"area"} , "width":"6_4","height":64.9,"crop":"disabled","odd":1e2},"class_type":"ImageScale"},
 "2":{"class_type":"EmptyImage","inputs":{"width":true,"height":6e1,"batch_size":1,"color":12345}},
 "9":{"class_type":"SaveImage","inputs":{"images":["1",0],"filename_prefix":17.50}}}`
	want := strings.NewReplacer(`{"__value__":"area"}`, `"area"`, `"6_4"`, `64`, `64.9`, `64`, `true`, `1`, `6e1`, `60`, `17.50`, `"17.5"`).Replace(sent)
	for _, v := range []release{older, newer} {
		verdict := validate(t, fleet(info(t, v)), v, sent)
		require.True(t, verdict.Accepted(), "%+v", verdict.Answer)
		require.Equal(t, want, string(verdict.Graph.Bytes()), "only the coerced literals change")
		require.Equal(t, []string{"9"}, verdict.Outputs)
		require.Empty(t, verdict.Unsure)
	}
}

func TestCoercionOfWrappedLists(t *testing.T) {
	t.Parallel()
	i := parseInfo(t, `{"N":{"input":{"required":{"a":["INT",{}],"b":["THINGS",{}],"c":["STRING",{}],"d":["BOOLEAN",{}]}},"output":[],"output_node":true}}`)
	sent := `{"1":{"class_type":"N","inputs":{"a":{"__value__":"3"},"b":{"__value__":["x",0]},"c":{"__value__":["x",1.50]},"d":"false"}}}`
	verdict := validate(t, fleet(i), newer, sent)
	require.True(t, verdict.Accepted())
	require.Equal(t, `{"1":{"class_type":"N","inputs":{"a":3,"b":{"__value__":["x",0]},"c":"['x', 1.5]","d":true}}}`,
		string(verdict.Graph.Bytes()), "a list without its wrapper would be a link")
}

// custom is a class of a node pack, whose own checks nobody knows.
const custom = `{"Load":{"input":{"required":{"name":[["a.pt","b.pt"],{}],"n":["INT",{"min":0,"max":9}]}},"output":["THING"],"output_node":false,"python_module":"custom_nodes.pack"},
"Show":{"input":{"required":{"thing":["OTHER",{}]}},"output":[],"output_node":true,"python_module":"custom_nodes.pack"}}`

func TestUnsure(t *testing.T) {
	t.Parallel()
	cat := fleet(parseInfo(t, custom))
	verdict := validate(t, cat, newer, `{"1":{"class_type":"Load","inputs":{"name":"c.pt","n":10}},"2":{"class_type":"Show","inputs":{"thing":["1",0]}}}`)
	require.True(t, verdict.Accepted(), "an instance may know better")
	require.Equal(t, []string{"2: return_type_mismatch", "1: value_not_in_list", "1: value_bigger_than_max"}, verdict.Unsure)

	verdict = validate(t, cat, newer, `{"1":{"class_type":"Load","inputs":{"n":"x"}},"2":{"class_type":"Show","inputs":{"thing":["1",0]}}}`)
	require.False(t, verdict.Accepted(), "presence and conversion are checked for every class")
	require.Equal(t, `required_input_missing invalid_input_type`, kinds(verdict, "1"))
}

// kinds are the types of the errors of a node.
func kinds(v *catalog.Verdict, node string) string {
	var list []string
	for _, e := range v.NodeErrors.Object(node).Array("errors") {
		list = append(list, e.(*pyjson.Object).String("type"))
	}
	return strings.Join(list, " ")
}

func TestLongListsAreNotQuoted(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{20: "name: 'it''s' not in ['o0', 'o1'", 21: "name: 'it''s' not in (list of length 21)"} {
		names := make([]string, n)
		for i := range names {
			names[i] = "o" + strconv.Itoa(i)
		}
		cat := fleet(parseInfo(t, strings.Replace(loader(true, names...), `"output_node": false`, `"output_node": true`, 1)))
		verdict := validate(t, cat, older, `{"1":{"class_type":"Loader","inputs":{"name":"it''s","strength":1}}}`)
		e := verdict.NodeErrors.Object("1").Array("errors")[0].(*pyjson.Object)
		require.True(t, strings.HasPrefix(e.String("details"), want), e.String("details"))
		require.Equal(t, n > 20, marshal(e.Object("extra_info")) == `{"input_name": "name", "input_config": null, "received_value": "it''s"}`)
		verdict = validate(t, cat, newer, `{"1":{"class_type":"Loader","inputs":{"name":"it's","strength":1}}}`)
		require.Contains(t, verdict.Error.String("details"), `name: "it's" not in`, "newer ones quote as Python does")
	}
}

func TestMultiselect(t *testing.T) {
	t.Parallel()
	cat := fleet(parseInfo(t, `{"M":{"input":{"required":{"x":["COMBO",{"multiselect":true,"options":["a","b"]}]}},"output":[],"output_node":true,"python_module":"nodes"}}`))
	graph := func(list string) string { return `{"1":{"class_type":"M","inputs":{"x":{"__value__":` + list + `}}}}` }
	require.True(t, validate(t, cat, newer, graph(`["b","a"]`)).Accepted())
	require.Equal(t, "Value not in list: x: 'c', 5 not in ['a', 'b']", validate(t, cat, newer, graph(`["c","a",5]`)).Error.String("details"))
	require.Equal(t, "Value not in list: x: '['a']' not in ['a', 'b']", validate(t, cat, "0.20.9", graph(`["a"]`)).Error.String("details"))
	require.True(t, validate(t, cat, "0.7.0", graph(`["z"]`)).Accepted(), "not checked before 0.8")
	require.True(t, validate(t, cat, "0.7.0", `{"1":{"class_type":"M","inputs":{"x":"z"}}}`).Accepted())
}

func TestTypes(t *testing.T) {
	t.Parallel()
	class := func(in, out string) string {
		return `{"A":{"input":{"required":{}},"output":[` + out + `],"output_node":false,"python_module":"nodes"},
			"B":{"input":{"required":{"x":[` + in + `,{}]}},"output":[],"output_node":true,"python_module":"nodes"}}`
	}
	for _, tt := range []struct {
		out, in string
		ok      bool
	}{
		{`"IMAGE"`, `"IMAGE"`, true},
		{`"IMAGE"`, `"LATENT"`, false},
		{`"INT"`, `"FLOAT,INT"`, true},
		{`"A, B"`, `"C,B"`, true},
		{`"A,B"`, `"C,D"`, false},
		{`"*"`, `"IMAGE"`, true},
		{`"IMAGE"`, `"*"`, true},
		{`"IMAGE"`, `"A,*"`, true},
		{`"COMFY_MATCHTYPE_V3"`, `"IMAGE"`, true},
		{`"IMAGE"`, `"COMFY_MATCHTYPE_V3"`, true},
		{`["a","b"]`, `["a","b"]`, true},
		{`["a","b"]`, `["a"]`, true},
		{`["a"]`, `"COMBO"`, true},
		{`"COMBO"`, `["a"]`, true},
		{`["a"]`, `"STRING"`, false},
		{`"STRING"`, `["a"]`, false},
		{`"STRING"`, `"COMBO"`, false},
	} {
		verdict := validate(t, fleet(parseInfo(t, class(tt.in, tt.out))), newer,
			`{"1":{"class_type":"A","inputs":{}},"2":{"class_type":"B","inputs":{"x":["1",0]}}}`)
		require.Equal(t, tt.ok, verdict.Accepted(), "%s into %s", tt.out, tt.in)
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	for slot, details := range map[string]string{
		`0`: "", `-1`: "", `true`: "Return type mismatch", `false`: "",
		`2`: "tuple index out of range", `-3`: "tuple index out of range", `0.0`: "not float", `null`: "not NoneType",
		`99999999999999999999`: "cannot fit 'int'",
	} {
		verdict := validate(t, cat, newer, `{"1":{"class_type":"LoadImage","inputs":{"image":"broken.png"}},
			"9":{"class_type":"SaveImage","inputs":{"images":["1",`+slot+`],"filename_prefix":"t"}}}`)
		if slot == "-1" || slot == "true" { // the mask
			require.Contains(t, verdict.Error.String("details"), "received_type(MASK) mismatch", slot)
			continue
		}
		if details == "" {
			require.True(t, verdict.Accepted(), slot)
			continue
		}
		require.Contains(t, verdict.Error.String("details"), details, slot)
	}
	for link, details := range map[string]string{`[null,0]`: "None", `[1.0,0]`: "1.0", `[true,0]`: "True", `[["1"],0]`: "unhashable type: 'list'", `[{},0]`: "unhashable type: 'dict'"} {
		verdict := validate(t, cat, newer, `{"9":{"class_type":"SaveImage","inputs":{"images":`+link+`,"filename_prefix":"t"}}}`)
		require.Equal(t, "Exception when validating node: "+details, verdict.Error.String("details"), link)
	}
}

func TestInnerException(t *testing.T) {
	t.Parallel()
	verdict := validate(t, fleet(info(t, newer)), newer, image(`"1":{"class_type":"ImageInvert","inputs":{"image":["7",0]}}`))
	e := verdict.NodeErrors.Object("1").Array("errors")[0].(*pyjson.Object)
	require.Equal(t, "exception_during_inner_validation", e.String("type"))
	require.Equal(t, "'7'", e.String("details"))
	require.Equal(t, "images", e.Object("extra_info").String("input_name"))
	require.Equal(t, `["1", 0]`, marshal(e.Object("extra_info").Array("linked_node")))
}

func TestCycleKeepsOtherErrors(t *testing.T) {
	t.Parallel()
	graph := image(`"1":{"class_type":"ImageScale","inputs":{"image":["2",0],"upscale_method":"area","width":-1,"height":1,"crop":"disabled"}},
		"2":{"class_type":"ImageInvert","inputs":{"image":["1",0]}}`)
	verdict := validate(t, fleet(info(t, newer)), newer, graph)
	require.Equal(t, "dependency_cycle value_smaller_than_min", kinds(verdict, "1"))
	require.Equal(t, "dependency_cycle", kinds(verdict, "2"))
	verdict = validate(t, fleet(info(t, older)), older, graph)
	require.Equal(t, "value_smaller_than_min", kinds(verdict, "1"))
	require.Empty(t, kinds(verdict, "2"))
}

func TestTargets(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	graph := `{"1":{"class_type":"EmptyImage","inputs":{"width":64,"height":64,"batch_size":1,"color":0}},
		"22":{"class_type":"SaveImage","inputs":{"images":["1",0],"filename_prefix":"t"}},"3":{"class_type":"PreviewImage","inputs":{"images":["1",0]}}}`
	for targets, want := range map[string][]string{
		``: {"22", "3"}, `null`: {"22", "3"}, `["3"]`: {"3"}, `["3","1","zz",{}]`: {"3"}, `"122"`: {"22"}, `{"22":0}`: {"22"},
		`[]`: nil, `""`: nil, `[3]`: nil, `{}`: nil,
	} {
		p := catalog.Prompt{Graph: parseGraph(t, graph), Version: newer}
		if targets != "" {
			p.Targets = []byte(targets)
		}
		verdict := cat.Validate(p)
		require.Equal(t, want, verdict.Outputs, targets)
		if want == nil {
			require.Equal(t, "prompt_no_outputs", verdict.Error.String("type"), targets)
		}
	}
	verdict := cat.Validate(catalog.Prompt{Graph: parseGraph(t, graph), Targets: []byte(`5`), Version: newer})
	require.Equal(t, 500, verdict.Answer.Status, "Python cannot look into a number")
}

func TestFileCheck(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	ask := func(name string, known bool) *catalog.Verdict {
		return cat.Validate(catalog.Prompt{
			Graph:   parseGraph(t, image(`"1":{"class_type":"LoadImage","inputs":{"image":"`+name+`"}}`)),
			Version: newer, Known: func(job.FileRef) bool { return known },
		})
	}
	require.True(t, ask("mine.png", true).Accepted())
	require.True(t, ask("broken.png", false).Accepted(), "an instance lists it")
	verdict := ask("sub/none.png [temp]", false)
	require.Equal(t, `{"1": {"errors": [{"type": "custom_validation_failed", "message": "Custom validation failed for node", `+
		`"details": "image - Invalid image file: sub/none.png [temp]", "extra_info": {"input_name": "image"}}], `+
		`"dependent_outputs": ["9"], "class_type": "LoadImage"}}`, marshal(verdict.NodeErrors))
}

func TestUploadedFilePassesAList(t *testing.T) {
	t.Parallel()
	cat := fleet(parseInfo(t, `{"Read":{"input":{"required":{"file":["COMBO",{"options":["old.txt"]}]}},"output":[],"output_node":true,"python_module":"nodes"}}`))
	graph := `{"1":{"class_type":"Read","inputs":{"file":"new.txt"}}}`
	require.False(t, validate(t, cat, newer, graph).Accepted())
	verdict := cat.Validate(catalog.Prompt{
		Graph: parseGraph(t, graph), Version: newer,
		Known: func(r job.FileRef) bool { return r == job.FileRef{Type: "input", Filename: "new.txt"} },
	})
	require.True(t, verdict.Accepted(), "it will be there when the instance looks")
}

func TestListsOfTheFrontend(t *testing.T) {
	t.Parallel()
	verdict := validate(t, fleet(info(t, newer)), newer,
		`{"1":{"class_type":"CustomCombo","inputs":{"choice":"mine"}},"9":{"class_type":"PreviewAny","inputs":{"source":["1",0]}}}`)
	require.True(t, verdict.Accepted(), "the options are made in the browser")
	require.Equal(t, []string{"1: value_not_in_list"}, verdict.Unsure)
	verdict = validate(t, fleet(parseInfo(t, `{"R":{"input":{"required":{"x":["COMBO",{"remote":{"route":"/r"}}]}},"output_node":true,"python_module":"nodes"}}`)), newer,
		`{"1":{"class_type":"R","inputs":{"x":"mine"}}}`)
	require.True(t, verdict.Accepted(), "the options are fetched by the browser")
}

func TestEmptyCatalog(t *testing.T) {
	t.Parallel()
	for _, cat := range []*catalog.Catalog{nil, fleet(), fleet(parseInfo(t, `{}`))} {
		require.True(t, cat.Empty())
		verdict := validate(t, cat, newer, `{"1":{"class_type":"Any","inputs":{"x":["2",0]}},"2":{"class_type":"Other"}}`)
		require.True(t, verdict.Accepted())
		require.Empty(t, verdict.Outputs, "nobody knows them yet")
		require.Equal(t, `{"1":{"class_type":"Any","inputs":{"x":["2",0]}},"2":{"class_type":"Other", "inputs": {}}}`, string(verdict.Graph.Bytes()))

		for graph, kind := range map[string]string{
			`{}`:                     "prompt_no_outputs",
			`{"1":{"inputs":{}}}`:    "missing_node_type",
			`{"1":{"class_type":5}}`: "missing_node_type",
			`{"1":{"class_type":"A","inputs":{"x":["7",0]}}}`: "prompt_outputs_failed_validation",
		} {
			verdict := validate(t, cat, newer, graph)
			require.Equal(t, kind, verdict.Error.String("type"), graph)
		}
		require.Equal(t, 500, validate(t, cat, newer, `{"1":[]}`).Answer.Status)
		require.Equal(t, 500, validate(t, cat, newer, `{"1":{"class_type":"A","inputs":null}}`).Answer.Status)
	}
}

func TestOddTitles(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	for meta, want := range map[string]string{`{"title":"A"}`: "Node 'A' not found", `{"title":null}`: "Node 'None' not found", `{}`: "Node 'Gone' not found", `{"title":5}`: "Node '5' not found"} {
		verdict := validate(t, cat, newer, `{"1":{"class_type":"Gone","inputs":{},"_meta":`+meta+`}}`)
		require.Contains(t, verdict.Error.String("message"), want)
	}
	for _, meta := range []string{`null`, `"x"`, `[]`} {
		verdict := validate(t, cat, newer, `{"1":{"class_type":"Gone","inputs":{},"_meta":`+meta+`}}`)
		require.Equal(t, 500, verdict.Answer.Status, meta)
	}
}

func TestLargeGraphsStayBounded(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range 3000 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"n` + strconv.Itoa(i) + `":{"class_type":"SaveImage","inputs":{}}`)
	}
	b.WriteByte('}')
	verdict := validate(t, fleet(info(t, newer)), newer, b.String())
	require.False(t, verdict.Accepted())
	require.Equal(t, 1000, verdict.NodeErrors.Len())
	require.Less(t, len(verdict.Answer.Body), 20<<20)

	b.Reset()
	b.WriteString(`{"n0":{"class_type":"EmptyImage","inputs":{"width":64,"height":64,"batch_size":1,"color":0}}`)
	for i := range 6000 {
		b.WriteString(`,"n` + strconv.Itoa(i+1) + `":{"class_type":"ImageInvert","inputs":{"image":["n` + strconv.Itoa(i) + `",0]}}`)
	}
	b.WriteString(`,"9":{"class_type":"SaveImage","inputs":{"images":["n6000",0],"filename_prefix":"t"}}}`)
	verdict = validate(t, fleet(info(t, newer)), newer, b.String())
	require.Contains(t, marshal(verdict.NodeErrors), "maximum recursion depth exceeded", "a chain that no server can follow")
}

// FuzzValidate asks for any graph and looks at what would reach an instance.
func FuzzValidate(f *testing.F) {
	for _, v := range []release{older, newer} {
		for _, r := range recordings(f, v) {
			if request, err := catalog.ParseRequest([]byte(r.Body)); err == nil {
				f.Add(request.Graph.Bytes(), v == newer)
			}
		}
	}
	f.Add([]byte(`{"1":{"class_type":"SaveImage","inputs":{"images":"x","filename_prefix":5,"more":["9",0]}},"2":{"class_type":"EmptyImage"}}`), true)
	cats := map[release]*catalog.Catalog{older: fleet(info(f, older)), newer: fleet(info(f, newer))}
	f.Fuzz(func(t *testing.T, raw []byte, isNew bool) {
		g, err := catalog.ParseGraph(raw)
		if err != nil {
			return
		}
		v := older
		if isNew {
			v = newer
		}
		for _, cat := range []*catalog.Catalog{cats[v], nil} {
			verdict := cat.Validate(catalog.Prompt{Graph: g, Version: v})
			if !verdict.Accepted() {
				if verdict.Graph != nil || len(verdict.Answer.Body) == 0 {
					t.Fatalf("%q: %+v", raw, verdict)
				}
				continue
			}
			requireHarmless(t, verdict)
			again := cat.Validate(catalog.Prompt{Graph: verdict.Graph, Version: v})
			if !again.Accepted() || !bytes.Equal(again.Graph.Bytes(), verdict.Graph.Bytes()) {
				t.Fatalf("%q is not accepted a second time as it is", verdict.Graph.Bytes())
			}
			r := cat.Requirements(verdict.Graph, verdict.Outputs, nil)
			if missing := info(t, v).Satisfies(r); cat != nil && len(missing) > 0 {
				t.Fatalf("%q: the only instance lacks %q", raw, missing)
			}
			cat.InputFiles(verdict.Graph, verdict.Outputs, nil)
		}
	})
}

// requireHarmless looks for what ends the worker of an instance.
func requireHarmless(t *testing.T, v *catalog.Verdict) {
	root := must.Get(pyjson.Parse(v.Graph.Bytes()))(t)
	nodes := root.(*pyjson.Object)
	for id := range nodes.All() {
		require.NotNil(t, nodes.Object(id).Object("inputs"), "node %q of %q has no inputs", id, v.Graph.Bytes())
	}
	seen := map[string]bool{}
	todo := append([]string(nil), v.Outputs...)
	for len(todo) > 0 {
		id := todo[0]
		todo = todo[1:]
		if seen[id] {
			continue
		}
		seen[id] = true
		require.True(t, nodes.Has(id), "a link to %q, which is nowhere, in %q", id, v.Graph.Bytes())
		for _, value := range nodes.Object(id).Object("inputs").All() {
			link, _ := value.(pyjson.Array)
			if len(link) != 2 {
				continue
			}
			from, isText := link[0].(pyjson.String)
			switch link[1].(type) {
			case pyjson.Number, pyjson.Bool:
				if isText {
					todo = append(todo, string(from))
				}
			}
		}
	}
}
