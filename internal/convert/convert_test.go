package convert

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// classes are a few node classes.
const classes = `{
	"Load": {"input": {"required": {"name": [["a", "b"], {}]}}, "output": ["MODEL"], "display_name": "Load a model"},
	"Sample": {"input": {"required": {"model": ["MODEL"], "seed": ["INT", {"default": 0}], "cfg": ["FLOAT", {"default": 8.0}]},
		"optional": {"text": ["STRING", {"forceInput": true}], "sampler": ["COMBO", {"options": ["x", "y"]}]}},
		"input_order": {"required": ["model", "seed", "cfg"], "optional": ["text", "sampler"]}},
	"Merge": {"input": {"required": {"a": ["MODEL"], "b": ["MODEL"], "on": ["BOOLEAN", {"default": true}]}}},
	"List": {"input": {"required": {"list": ["STRING", {}]}}}
}`

func find(t testing.TB) Classes {
	t.Helper()
	v := must.Get(pyjson.Parse([]byte(classes)))(t)
	all, _ := v.(*pyjson.Object)
	return all.Object
}

func parsed(t testing.TB, text string) *pyjson.Object {
	t.Helper()
	v, err := pyjson.Parse([]byte(text))
	require.NoError(t, err, text)
	o, ok := v.(*pyjson.Object)
	require.True(t, ok)
	return o
}

// load, between and sample are the parts of most workflows here.
const load = `{"id": 1, "type": "Load", "order": 0, "mode": 0, "outputs": [{"type": "MODEL", "links": [1]}], "widgets_values": ["b"]}`

func sample(values string) string {
	return `{"id": 3, "type": "Sample", "order": 9, "title": "S", "inputs": [{"name": "model", "type": "MODEL", "link": 2}], "widgets_values": ` + values + `}`
}

func TestToAPI(t *testing.T) {
	t.Parallel()
	const loaded = `"1": {"inputs": {"name": "b"}, "class_type": "Load", "_meta": {"title": "Load a model"}}`
	sampled := func(model, values string) string {
		return `"3": {"inputs": {` + values + model + `}, "class_type": "Sample", "_meta": {"title": "S"}}`
	}
	const usual = `"seed": 7, "cfg": 2.5, "sampler": "y"`
	between := func(node, links string) string {
		return `{"nodes": [` + sample(`[7, "randomize", 2.5, "y"]`) + `, ` + load + `, ` + node + `], "links": [` + links + `]}`
	}
	const merge = `{"id": 2, "type": "Merge", "order": 5, "mode": %, "inputs": [{"name": "a", "type": "X", "link": null}, {"name": "b", "type": "MODEL", "link": 1}],
		"outputs": [{"type": "MODEL"}], "widgets_values": [false]}`
	for name, c := range map[string][2]string{
		"plain":                    {between(`{"id": 4, "type": "Note", "widgets_values": ["x"]}`, `[2, 1, 0, 3, 0, "MODEL"]`), loaded + `, ` + sampled(`, "model": ["1", 0]`, usual)},
		"bypassed":                 {between(strings.Replace(merge, "%", "4", 1), `[1, 1, 0, 2, 1, "MODEL"], [2, 2, 0, 3, 0, "MODEL"]`), loaded + `, ` + sampled(`, "model": ["1", 0]`, usual)},
		"muted":                    {between(strings.Replace(merge, "%", "2", 1), `[1, 1, 0, 2, 1, "MODEL"], [2, 2, 0, 3, 0, "MODEL"]`), loaded + `, ` + sampled(``, usual)},
		"rerouted":                 {between(`{"id": 2, "type": "Reroute", "inputs": [{"name": "", "type": "*", "link": 1}], "outputs": [{"type": "MODEL"}]}`, `[1, 1, 0, 2, 0, "*"], [2, 2, 0, 3, 0, "MODEL"]`), loaded + `, ` + sampled(`, "model": ["1", 0]`, usual)},
		"a circle of reroutes":     {between(`{"id": 2, "type": "Reroute", "inputs": [{"name": "", "type": "*", "link": 1}], "outputs": [{"type": "MODEL"}]}`, `[1, 2, 0, 2, 0, "*"], [2, 2, 0, 3, 0, "MODEL"]`), loaded + `, ` + sampled(``, usual)},
		"without a companion":      {`{"nodes": [` + sample(`[7, 2.5, "y"]`) + `], "links": []}`, sampled(``, usual)},
		"an old companion":         {`{"nodes": [` + sample(`[7, true, 2.5, "y"]`) + `], "links": []}`, sampled(``, usual)},
		"fewer values":             {`{"nodes": [` + sample(`[7, "fixed"]`) + `], "links": []}`, sampled(``, `"seed": 7, "cfg": 8.0, "sampler": "x"`)},
		"values by name":           {`{"nodes": [` + sample(`{"cfg": 2.5, "seed": 7, "sampler": "y"}`) + `], "links": []}`, sampled(``, usual)},
		"a list":                   {`{"nodes": [{"id": "a", "type": "List", "widgets_values": [["1", 0]]}]}`, `"a": {"inputs": {"list": {"__value__": ["1", 0]}}, "class_type": "List", "_meta": {"title": "List"}}`},
		"a primitive, a converted": {`{"nodes": [{"id": 1, "type": "PrimitiveNode", "widgets_values": [18446744073709551615, "fixed"]}, {"id": 3, "title": "S", "type": "Sample", "inputs": [{"name": "model", "link": null}, {"name": "seed", "type": "INT", "widget": {"name": "seed"}, "link": 2}], "widgets_values": [7, "randomize", 2.5, "y"]}], "links": [[2, 1, 0, 3, 1, "INT"]]}`, sampled(``, strings.Replace(usual, "7", "18446744073709551615", 1))},
		"a subgraph": {
			`{"nodes": [` + load + `, {"id": 2, "type": "sub", "order": 1, "inputs": [{"name": "m", "type": "MODEL", "link": 1}], "outputs": [{"type": "MODEL"}], "widgets_values": [true]},` + sample(`[7, "fixed", 2.5, "y"]`) + `],
			"links": [[1, 1, 0, 2, 0, "MODEL"], [2, 2, 0, 3, 0, "MODEL"]], "definitions": {"subgraphs": [{"id": "sub", "inputs": [{"name": "m"}, {"name": "on"}], "nodes": [
			{"id": 5, "type": "Merge", "inputs": [{"name": "a", "type": "MODEL", "link": 8}, {"name": "b", "link": null}, {"name": "on", "widget": {"name": "on"}, "link": 9}], "widgets_values": [false]}],
			"links": [{"id": 8, "origin_id": -10, "origin_slot": 0, "target_id": 5, "target_slot": 0}, {"id": 9, "origin_id": -10, "origin_slot": 1, "target_id": 5, "target_slot": 2}, {"id": 10, "origin_id": 5, "origin_slot": 0, "target_id": -20, "target_slot": 0}]}]}}`,
			loaded + `, "2:5": {"inputs": {"on": true, "a": ["1", 0]}, "class_type": "Merge", "_meta": {"title": "Merge"}}, ` + sampled(`, "model": ["2:5", 0]`, usual),
		},
	} {
		workflow := parsed(t, c[0])
		require.True(t, IsSaved(workflow), name)
		got, err := ToAPI(workflow, 1<<20, find(t))
		require.NoError(t, err, name)
		require.Equal(t, "{"+c[1]+"}", string(pyjson.Marshal(got)), name)
	}
}

// What cannot be converted is said by node, and bombs are refused.
func TestRefusals(t *testing.T) {
	t.Parallel()
	_, err := ToAPI(parsed(t, `{"nodes": [{"id": 7, "type": "Unknown"}]}`), 1<<20, find(t))
	require.EqualError(t, err, "node 7 (Unknown): the class is not known to any server")
	for text, says := range map[string]string{
		`{"nodes": [{"id": 1, "type": "s"}], "definitions": {"subgraphs": [{"id": "s", "nodes": [{"id": 1, "type": "s"}]}]}}`: "too deeply",
		`{"nodes": [{"id": 1}, {"id": 1}]}`: "id of its own",
		`{"nodes": [5]}`:                    "id of its own",
		`{"nodes": [{"id": 0, "type": "s"}], "definitions": {"subgraphs": [{"id": "s", "nodes": [` + uses("s", 40) + `]}]}}`: "too",
	} {
		_, err := ToAPI(parsed(t, text), 1<<20, find(t))
		require.ErrorContains(t, err, says, text)
	}
	large := `"` + strings.Repeat("x", 2000) + `"`
	_, err = ToAPI(parsed(t, `{"nodes": [`+uses("s", 900)+`], "definitions": {"subgraphs": [{"id": "s", "nodes": [{"id": 1, "type": "List", "widgets_values": [`+large+`]}]}]}}`), 1<<20, find(t))
	require.ErrorIs(t, err, ErrLarge)
	require.False(t, IsSaved(parsed(t, `{"1": {}}`)))
	require.False(t, IsSaved(nil))
}

func uses(id string, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = `{"id": ` + string(pyjson.Int(int64(i))) + `, "type": "` + id + `"}`
	}
	return strings.Join(all, ",")
}

// The environment names a folder of workflows that the web UI has saved and converted, and
// the /object_info of its server.
func TestAgainstTheWebUI(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("COMFYHUB_CONVERTED")
	if folder == "" {
		t.Skip("COMFYHUB_CONVERTED names no recordings")
	}
	data := must.Get(os.ReadFile(folder + ".object_info.json"))(t)
	known := parsed(t, string(data))
	entries := must.Get(os.ReadDir(folder))(t)
	equal := 0
	for _, e := range entries {
		data := must.Get(os.ReadFile(folder + "/" + e.Name()))(t)
		pair := parsed(t, string(data))
		for _, kind := range []string{"input", "saved"} {
			got, err := ToAPI(pair.Object(kind), 1<<24, known.Object)
			if err != nil {
				t.Logf("%s %s: %v", e.Name(), kind, err)
				continue
			}
			want := pair.Object("output")
			same := got.Len() == want.Len()
			for id, v := range want.All() {
				have, _ := got.Get(id)
				if !sameNode(v, have) {
					same = false
					t.Logf("%s %s %s:\n  want %s\n  have %s", e.Name(), kind, id, pyjson.Marshal(v), text(have))
				}
			}
			if same {
				equal++
			}
		}
	}
	t.Logf("%d of %d are equal", equal, 2*len(entries))
}

func text(v pyjson.Value) string {
	if v == nil {
		return "nothing"
	}
	return string(pyjson.Marshal(v))
}

// sameNode compares nodes without regard to the order of inputs, and numbers as JavaScript
// writes them.
func sameNode(a, b pyjson.Value) bool {
	x, _ := a.(*pyjson.Object)
	y, _ := b.(*pyjson.Object)
	if x == nil || y == nil || x.String("class_type") != y.String("class_type") {
		return false
	}
	for name, v := range x.Object("inputs").All() {
		w, ok := y.Object("inputs").Get(name)
		if !ok && v == pyjson.String("") { // of an element that only shows something
			continue
		}
		n, isNumber := v.(pyjson.Number)
		m, isToo := w.(pyjson.Number)
		if !ok || isNumber != isToo || isNumber && n.Float64() != m.Float64() || !isNumber && !pyjson.Equal(v, w) {
			return false
		}
	}
	return true
}

func FuzzToAPI(f *testing.F) {
	f.Add(`{"nodes": [` + load + `, ` + sample(`[7, "randomize"]`) + `], "links": [[2, 1, 0, 3, 0, "MODEL"], {"id": 1}, []], "definitions": {"subgraphs": [{}, 5]}}`)
	f.Add(`{"nodes": [{"id": 1, "type": "s"}], "definitions": {"subgraphs": [{"id": "s", "nodes": [{"id": 1, "type": "s"}]}]}}`)
	f.Add(`{"nodes": [{"id": 1, "type": "Save", "widgets_values": ["v", "h264", 5, "again", 18, false]}, {"id": 2, "type": "Loras", "widgets_values": [2, "b", 0.5]}, {"id": 3, "type": "CustomCombo", "widgets_values": ["y", 0, "y"]}]}`)
	plain, dynamic := find(f), parsed(f, elements)
	known := func(name string) *pyjson.Object {
		if class := plain(name); class != nil {
			return class
		}
		return dynamic.Object(name)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := pyjson.Parse([]byte(text))
		if o, ok := v.(*pyjson.Object); ok && err == nil {
			if out, err := ToAPI(o, 1<<20, known); err == nil {
				_, err = pyjson.Parse(pyjson.Marshal(out))
				require.NoError(t, err)
			}
		}
	})
}
