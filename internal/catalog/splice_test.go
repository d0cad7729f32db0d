package catalog_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/pyjson"
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
			out, err := catalog.Splice([]byte(tt.in), tt.edits)
			require.NoError(t, err)
			require.Equal(t, tt.want, string(out))
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
