package catalog_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestSplice(t *testing.T) {
	t.Parallel()
	edit := func(v pyjson.Value, path ...string) catalog.Edit { return catalog.Edit{Path: path, Value: v} }
	add := func(v pyjson.Value, path ...string) catalog.Edit {
		return catalog.Edit{Path: path, Value: v, Add: true}
	}
	for _, tt := range []struct {
		name, in, want string
		edits          []catalog.Edit
	}{
		{"nothing", ` {"a" : 1 } `, ` {"a" : 1 } `, nil},
		{"one literal", ` {"a" : 1e2 , "b":NaN} `, ` {"a" : "x" , "b":NaN} `, []catalog.Edit{edit(pyjson.String("x"), "a")}},
		{"in arrays", `{"a":[1,[2 ,3]]}`, `{"a":[1,[9 ,3]]}`, []catalog.Edit{edit(pyjson.Int(9), "a", "1", "0")}},
		{"the last of equal keys", `{"a":1,"a":{"b":2,"b":3}}`, `{"a":1,"a":{"b":2,"b":null}}`, []catalog.Edit{edit(pyjson.Null{}, "a", "b")}},
		{"a key in escapes", `{"\u0061":{"x\"}":1}}`, `{"\u0061":{"x\"}":true}}`, []catalog.Edit{edit(pyjson.Bool(true), "a", `x"}`)}},
		{
			"several, not in order", `{"a":1,"b":"}]\\","c":[]}`, `{"a":0,"b":"z","c":{}}`,
			[]catalog.Edit{edit(&pyjson.Object{}, "c"), edit(pyjson.String("z"), "b"), edit(pyjson.Int(0), "a")},
		},
		{"the root", `[1]`, `2`, []catalog.Edit{edit(pyjson.Int(2))}},
		{"a new member", `{"3":{"class_type":"X" } }`, `{"3":{"class_type":"X" , "inputs": {}} }`, []catalog.Edit{add(&pyjson.Object{}, "3", "inputs")}},
		{"new members of an empty object", `{"3": {}}`, `{"3": {"a": 1, "b": 2}}`, []catalog.Edit{add(pyjson.Int(1), "3", "a"), add(pyjson.Int(2), "3", "b")}},
		{"a new member beside a change", `{"a":1}`, `{"a":5, "b": 2}`, []catalog.Edit{edit(pyjson.Int(5), "a"), add(pyjson.Int(2), "b")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, string(must.Get(catalog.Splice([]byte(tt.in), tt.edits))(t)))
		})
	}
}

func TestSpliceRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		edit catalog.Edit
	}{
		{`{"a":1}`, catalog.Edit{Path: catalog.Path{"b"}}},
		{`{"a":1}`, catalog.Edit{Path: catalog.Path{"a", "b"}}},
		{`{"a":[1]}`, catalog.Edit{Path: catalog.Path{"a", "1"}}},
		{`{"a":[1]}`, catalog.Edit{Path: catalog.Path{"a", "x"}, Add: true}},
		{`1`, catalog.Edit{Path: catalog.Path{"a"}}},
	} {
		tt.edit.Value = pyjson.Null{}
		_, err := catalog.Splice([]byte(tt.in), []catalog.Edit{tt.edit})
		require.ErrorIs(t, err, catalog.ErrNoSuchPlace, "%s %v", tt.in, tt.edit.Path)
	}
	_, err := catalog.Splice([]byte(`{"a":{"b":1}}`), []catalog.Edit{
		{Path: catalog.Path{"a"}, Value: pyjson.Null{}}, {Path: catalog.Path{"a", "b"}, Value: pyjson.Null{}},
	})
	require.ErrorIs(t, err, catalog.ErrNoSuchPlace, "one inside the other")
}

// FuzzSplice replaces one member in any object and looks at every byte.
func FuzzSplice(f *testing.F) {
	f.Add([]byte(`{"1": {"inputs":{"a":1,"a":[2,{"x":"\"}"}]}}}`), uint(0), uint(1), "v")
	f.Add([]byte("\n[{\"k\" :NaN },-0.5e3,\"\\u0022\"]"), uint(0), uint(0), "")
	f.Fuzz(func(t *testing.T, raw []byte, first, second uint, text string) {
		v, err := pyjson.Parse(raw)
		if err != nil {
			return
		}
		var path catalog.Path
		value := v
		for _, n := range []uint{first, second} {
			o, ok := value.(*pyjson.Object)
			if !ok || o.Len() == 0 {
				break
			}
			key := o.Keys()[n%uint(o.Len())]
			path = append(path, key)
			value, _ = o.Get(key)
		}
		out, err := catalog.Splice(raw, []catalog.Edit{{Path: path, Value: pyjson.String(text)}})
		if err != nil {
			t.Fatalf("%q at %q: %v", raw, path, err)
		}
		literal := pyjson.Marshal(pyjson.String(text))
		changed, err := pyjson.Parse(out)
		if err != nil {
			t.Fatalf("%q at %q became %q: %v", raw, path, out, err)
		}
		for _, key := range path {
			changed, _ = changed.(*pyjson.Object).Get(key)
		}
		if got := pyjson.Marshal(changed); !bytes.Equal(got, literal) {
			t.Fatalf("%q at %q holds %q, not %q", raw, path, got, literal)
		}
		// What stands before and after the literal is what stood around the value.
		head := commonPrefix(raw, out)
		tail := commonSuffix(raw[head:], out[head:])
		if len(out)-head-tail > len(literal) {
			t.Fatalf("%q at %q: more than the literal changed: %q", raw, path, out)
		}
	})
}

func commonPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func commonSuffix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

func described(name, list string) string {
	return `"` + name + `": {"input": {"required": {"file": [` + list + `]}}, "output": ["MODEL"], "output_node": true, "python_module": "nodes"}`
}

func TestPatch(t *testing.T) {
	t.Parallel()
	library := catalog.NewLibrary()
	parse := func(text string) *catalog.Info { return must.Get(library.Parse([]byte(text)))(t) }
	before := parse(`{` + described("A", `["a.pt"]`) + `, ` + described("B", `["b.pt"]`) + `}`)
	for name, body := range map[string]string{
		"as it was":           `{` + described("A", `["a.pt"]`) + `}`,
		"an unknown class":    `{}`,
		"a class it has not":  `{` + described("C", `["c.pt"]`) + `}`,
		"what cannot be read": `{"A": {"input": 3}}`,
	} {
		info, changed, err := library.Patch(before, []byte(body))
		require.NoError(t, err, name)
		require.False(t, changed, name)
		require.Same(t, before, info, name)
	}
	for _, body := range []string{"", "[]", `{"A": `, `{} {}`} {
		_, _, err := library.Patch(before, []byte(body))
		require.Error(t, err, body)
	}
	has := func(info *catalog.Info, class, file string) bool {
		_, ok := info.Spelling(class, "file", file)
		return ok
	}
	after, changed, err := library.Patch(before, []byte(`{`+described("A", `["new.pt"]`)+`}`))
	require.NoError(t, err)
	require.True(t, changed)
	require.True(t, has(after, "A", "new.pt"))
	require.False(t, has(after, "A", "a.pt"))
	require.True(t, has(after, "B", "b.pt"))
	require.True(t, has(before, "A", "a.pt"), "what others hold stays as it is")
	require.NotEqual(t, before.Hash(), after.Hash())
	again, _, err := library.Patch(before, []byte(`{`+described("A", `["new.pt"]`)+`}`))
	require.NoError(t, err)
	require.Equal(t, after.Hash(), again.Hash(), "instances that share a folder stay equal")
}

// Classes whose lists are worth reading again are those with a value that a
// folder could have by now.
func TestUnlisted(t *testing.T) {
	t.Parallel()
	cat := fleet(parseInfo(t, `{`+described("Loader", `["a.pt"]`)+`,
		"Pack": {"input": {"required": {"file": [["a.pt"]]}}, "output": ["MODEL"], "output_node": true, "python_module": "custom_nodes.pack"},
		"Far": {"input": {"required": {"file": ["COMBO", {"options": [], "remote": {"route": "/far"}}]}}, "output": ["MODEL"], "output_node": true, "python_module": "nodes"},
		"Up": {"input": {"required": {"file": [["a.png"], {"image_upload": true}]}}, "output": ["MODEL"], "output_node": true, "python_module": "nodes"}}`))
	for _, c := range []struct {
		class, file string
		own         bool
		accepted    bool
		want        []string
	}{
		{class: "Loader", file: "a.pt", accepted: true},
		{class: "Loader", file: "new.pt", want: []string{"Loader"}},
		{class: "Pack", file: "new.pt", accepted: true, want: []string{"Pack"}},
		{class: "Far", file: "new.pt", accepted: true},
		{class: "Up", file: "mine.png", accepted: true},
		{class: "Up", file: "new.png", accepted: true, want: []string{"Up"}},
		{class: "Up", file: "new.png", own: true}, // it would be somebody else's
	} {
		verdict := cat.Validate(catalog.Prompt{
			Graph:    parseGraph(t, `{"1": {"class_type": "`+c.class+`", "inputs": {"file": "`+c.file+`"}}, "2": {"class_type": "`+c.class+`", "inputs": {"file": "`+c.file+`"}}}`),
			Version:  older,
			Known:    func(f job.FileRef) bool { return f.Filename == "mine.png" },
			OwnFiles: c.own,
		})
		require.Equal(t, c.accepted, verdict.Accepted(), "%+v", c)
		require.Equal(t, c.want, verdict.Unlisted, "%+v", c)
	}
}

// Folders of several instances make one folder in order; lists that are not in
// order, or name no files, keep theirs.
func TestFoldersInOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ one, two, want string }{
		{`["b.pt", "d.pt"]`, `["a.pt", "c.pt"]`, `["a.pt", "b.pt", "c.pt", "d.pt"]`},
		{`["b.pt"]`, `[]`, `["b.pt"]`},
		{`["d.pt", "b.pt"]`, `["a.pt"]`, `["d.pt", "b.pt", "a.pt"]`},
		{`["euler", "heun"]`, `["ddim", "euler"]`, `["euler", "heun", "ddim"]`},
	} {
		cat := fleet(parseInfo(t, `{`+described("A", c.one)+`}`), parseInfo(t, `{`+described("A", c.two)+`}`))
		require.Contains(t, string(cat.Class("A", nil).Body()), `"file": [`+c.want)
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	for name, test := range map[string]struct {
		graph string
		found []string
	}{
		"an input that uploads": {`{"1": {"class_type": "LoadImage", "inputs": {"image": "data:image/png;base64,AAAA"}}}`, []string{"1.image"}},
		"escaped":               {`{"1": {"class_type": "LoadImage", "inputs": {"image": "data:image\/png;base64,AAAA"}}}`, []string{"1.image"}},
		"an input that records": {`{"1": {"class_type": "LoadAudio", "inputs": {"audio": "data:,"}}}`, []string{"1.audio"}},
		"a file input that an old catalog does not know": {`{"1": {"class_type": "VHS_LoadVideo", "inputs": {"video": "data:;base64,AAAA"}}}`, []string{"1.video"}},
		"a text":                    {`{"1": {"class_type": "CLIPTextEncode", "inputs": {"text": "data:image/png;base64,AAAA"}}}`, nil},
		"a class that nobody knows": {`{"1": {"class_type": "Remote", "inputs": {"image": "data:image/png;base64,AAAA"}}}`, nil},
		"a link":                    {`{"1": {"class_type": "LoadImage", "inputs": {"image": ["data:;base64,AAAA", 0]}}}`, nil},
		"a name":                    {`{"1": {"class_type": "LoadImage", "inputs": {"image": "my data:.png"}}}`, nil},
		"not a graph":               {`["data:"]`, nil},
		"not a node":                {`{"1": "data:", "2": {"inputs": ["data:"]}, "3": {"class_type": 3, "inputs": {"image": "data:,"}}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := parseGraph(t, test.graph)
			var found []string
			for _, f := range cat.URLs(g, "data:") {
				found = append(found, f.Node+"."+f.Input)
			}
			require.Equal(t, test.found, found)
			require.Equal(t, strings.HasPrefix(test.graph, "{"), g.Mentions("data:"))
		})
	}
	require.False(t, parseGraph(t, `{"1": {"class_type": "LoadImage", "inputs": {"image": "a.png"}}}`).Mentions("data:", "https:"))
}

// refused are the parts of a refusal that tests look at.
type refused struct {
	Error  struct{ Type, Message string }
	Errors map[string]struct {
		Errors []struct {
			Type, Details string
			Extra         struct {
				InputName string `json:"input_name"`
			} `json:"extra_info"`
		}
		Outputs []string `json:"dependent_outputs"`
		Class   string   `json:"class_type"`
	} `json:"node_errors"`
}

// The graph of a refused data: URL has not been checked: it may have cycles and links
// that lead nowhere.
func TestRefuseInputs(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	g := parseGraph(t, `{
		"1": {"class_type": "LoadImage", "inputs": {"image": "data:a"}},
		"2": {"class_type": "ImageBlend", "inputs": {"image1": ["1", 0], "image2": ["2", 0]}},
		"3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0]}},
		"4": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0], "x": ["2", 0]}},
		"5": {"class_type": "PreviewImage", "inputs": {"images": ["6", 0]}},
		"7": {"class_type": "LoadAudio", "inputs": {"audio": "data:b"}}, "8": 8}`)
	var complaints []catalog.Complaint
	for _, f := range cat.URLs(g, "data:") {
		complaints = append(complaints, catalog.Complaint{File: f, Reason: "wrong " + f.Value})
	}
	answer := cat.RefuseInputs(g, complaints)
	require.Equal(t, 400, answer.Status)
	var got refused
	require.NoError(t, json.Unmarshal(answer.Body, &got))
	require.Equal(t, "prompt_outputs_failed_validation", got.Error.Type)
	require.Len(t, got.Errors, 2)
	require.Equal(t, "image - Invalid image file: wrong data:a", got.Errors["1"].Errors[0].Details)
	require.Equal(t, "custom_validation_failed", got.Errors["1"].Errors[0].Type)
	require.Equal(t, "image", got.Errors["1"].Errors[0].Extra.InputName)
	require.Equal(t, []string{"3", "4"}, got.Errors["1"].Outputs)
	require.Equal(t, "audio - Invalid audio file: wrong data:b", got.Errors["7"].Errors[0].Details)
	require.Empty(t, got.Errors["7"].Outputs)
}
