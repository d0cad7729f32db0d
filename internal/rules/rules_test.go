package rules

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

func graph(t testing.TB, text string) pyjson.Value {
	t.Helper()
	v, err := pyjson.Parse([]byte(text))
	require.NoError(t, err)
	return v
}

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"KSampler", "KSampler", true},
		{"KSampler", "KSamplerAdvanced", false},
		{"KSampler*", "KSamplerAdvanced", true},
		{"*", "", true},
		{"*", "x", true},
		{"", "", true},
		{"", "x", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"*Load*Image*", "MyLoadAnImageX", true},
		{"*Load*Image", "LoadImageMask", false},
		{"a**b", "ab", true},
		{"a*b*c", "acb", false},
	} {
		require.Equal(t, c.want, matches(c.pattern, c.text), "%s %s", c.pattern, c.text)
	}
}

func TestCheck(t *testing.T) {
	type row struct {
		rules Rules
		nodes string
		want  string // node.input of each fault
	}
	beside.Cases(t, map[string]row{
		"nothing":                  {Rules{}, `"1": {"class_type": "X", "inputs": {"width": 99999}}`, ""},
		"a denied class":           {Rules{DenyClasses: []string{"X*"}}, `"1": {"class_type": "XY"}, "2": {"class_type": "Y"}`, "1."},
		"case counts":              {Rules{DenyClasses: []string{"x"}}, `"1": {"class_type": "X"}`, ""},
		"an allowed class":         {Rules{AllowClasses: []string{"Y", "Z"}}, `"1": {"class_type": "X"}, "2": {"class_type": "Y"}`, "1."},
		"denied although allowed":  {Rules{AllowClasses: []string{"*"}, DenyClasses: []string{"X"}}, `"1": {"class_type": "X"}`, "1."},
		"no class":                 {Rules{AllowClasses: []string{"Y"}}, `"1": {}`, "1."},
		"a model":                  {Rules{DenyModels: []string{"secret*"}}, `"1": {"class_type": "X", "inputs": {"ckpt": "Secret-v1.safetensors", "b": "other.ckpt"}}`, "1.ckpt"},
		"a model in a folder":      {Rules{DenyModels: []string{"secret*"}}, `"1": {"class_type": "X", "inputs": {"ckpt": "sdxl\\Secret.ckpt"}}`, "1.ckpt"},
		"a folder of models":       {Rules{DenyModels: []string{"nsfw/*"}}, `"1": {"class_type": "X", "inputs": {"a": "NSFW\\a.pt", "b": "b.pt"}}`, "1.a"},
		"only some models":         {Rules{AllowModels: []string{"good*"}}, `"1": {"class_type": "X", "inputs": {"a": "good.pt", "b": "bad.pt ", "text": "bad"}}`, "1.b"},
		"a model deep in a value":  {Rules{DenyModels: []string{"bad*"}}, `"1": {"class_type": "X", "inputs": {"lora_1": {"on": true, "lora": "bad.safetensors"}}}`, "1.lora_1"},
		"a model in a text":        {Rules{DenyModels: []string{"bad*"}}, `"1": {"class_type": "X", "inputs": {"text": "a fox <lora:bad_one:0.8>, bad"}}`, "1.text"},
		"a text":                   {Rules{DenyModels: []string{"bad*"}}, `"1": {"class_type": "X", "inputs": {"text": "bad"}}`, ""},
		"too wide":                 {Rules{Max: map[string]float64{"width": 1024}}, `"1": {"class_type": "X", "inputs": {"width": 1025, "height": 9999}}`, "1.width"},
		"as wide as may be":        {Rules{Max: map[string]float64{"width": 1024}}, `"1": {"class_type": "X", "inputs": {"width": 1024}}`, ""},
		"a longer name":            {Rules{Max: map[string]float64{"width": 1024}}, `"1": {"class_type": "X", "inputs": {"target_WIDTH": 2000, "size.width": 2000, "bandwidth": 2000}}`, "1.target_WIDTH 1.size.width"},
		"a text that Python reads": {Rules{Max: map[string]float64{"steps": 50}}, `"1": {"class_type": "X", "inputs": {"steps": " 60 "}}`, "1.steps"},
		"digits of other scripts":  {Rules{Max: map[string]float64{"steps": 50}}, `"1": {"class_type": "X", "inputs": {"steps": "９９"}}`, "1.steps"},
		"an infinite one":          {Rules{Max: map[string]float64{"steps": 50}}, `"1": {"class_type": "X", "inputs": {"steps": Infinity}}, "2": {"class_type": "X", "inputs": {"steps": NaN}}`, "1.steps 2.steps"},
		"a float":                  {Rules{Max: map[string]float64{"batch": 4}}, `"1": {"class_type": "X", "inputs": {"batch_size": 4.5, "amount": 1e3}}`, "1.batch_size 1.amount"},
		"a primitive":              {Rules{Max: map[string]float64{"width": 10}}, `"1": {"class_type": "X", "inputs": {"width": ["2", 0]}}, "2": {"class_type": "PrimitiveInt", "inputs": {"value": 11}}`, "1.width"},
		"a small primitive":        {Rules{Max: map[string]float64{"width": 10}}, `"1": {"class_type": "X", "inputs": {"width": ["2", 0]}}, "2": {"class_type": "PrimitiveInt", "inputs": {"value": 10, "control": "fixed"}}`, ""},
		"a primitive with a lie":   {Rules{Max: map[string]float64{"width": 10}}, `"1": {"class_type": "X", "inputs": {"width": ["2", 0]}}, "2": {"class_type": "PrimitiveInt", "inputs": {"x": 1, "value": "８１"}}`, "1.width"},
		"a calculation":            {Rules{Max: map[string]float64{"width": 10}}, `"1": {"class_type": "X", "inputs": {"width": ["2", 0]}}, "2": {"class_type": "Math", "inputs": {"value": 1}}`, "1.width"},
		"a cycle":                  {Rules{Max: map[string]float64{"width": 10}}, `"1": {"class_type": "Reroute", "inputs": {"": ["1", 0], "width": ["1", 0]}}`, "1.width"},
		"a link to nowhere":        {Rules{Max: map[string]float64{"width": 10}}, `"1": {"class_type": "X", "inputs": {"width": ["9", 0]}}`, "1.width"},
		"an object":                {Rules{Max: map[string]float64{"width": 10}}, `"1": {"class_type": "X", "inputs": {"width": {"a": 1}}}`, "1.width"},
	}, func(t *testing.T, c row) {
		var got []string
		for _, f := range c.rules.Check(graph(t, "{"+c.nodes+"}")) {
			require.NotEmpty(t, f.Reason)
			require.NotEmpty(t, f.Kind)
			require.NotEmpty(t, f.Rule)
			if n, ok := f.Value.(pyjson.Number); ok {
				require.True(t, json.Valid([]byte(n)), "no browser reads %s", n)
			}
			got = append(got, f.Node+"."+f.Input)
		}
		require.Equal(t, c.want, strings.Join(got, " "))
	})
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for _, word := range Bounds() {
		r := Rules{Max: map[string]float64{word: 3}}
		found := r.Check(graph(t, fmt.Sprintf(`{"1": {"class_type": "X", "inputs": {%q: 4}}}`, word)))
		require.Len(t, found, 1, word)
		require.False(t, r.Empty())
	}
	require.True(t, Rules{}.Empty())
	require.Empty(t, Rules{DenyClasses: []string{"*"}}.Check(pyjson.String("no graph")))
}

// Whatever a graph looks like, checking it ends, and a class that is denied is found.
func FuzzCheck(f *testing.F) {
	f.Add(`{"1": {"class_type": "Bad", "inputs": {"width": ["1", 0], "m": "a.pt"}}}`)
	f.Add(`{"1": {"class_type": "Reroute", "inputs": {"": ["2", 0]}}, "2": {"class_type": "Reroute", "inputs": {"": ["1", 0]}}}`)
	r := Rules{DenyClasses: []string{"B*d"}, AllowModels: []string{"*good*"}, Max: map[string]float64{"width": 1, "steps": 1}}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := pyjson.Parse([]byte(text))
		if err != nil {
			t.Skip()
		}
		faults := r.Check(v)
		nodes, _ := v.(*pyjson.Object)
		for id := range nodes.All() {
			if nodes.Object(id).String("class_type") != "Bad" {
				continue
			}
			found := false
			for _, fault := range faults {
				found = found || fault.Node == id && fault.Input == ""
			}
			if !found {
				t.Fatal("a denied class is let through")
			}
		}
	})
}
