package pyjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func TestStrict(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 400)
	for in, want := range map[string]string{
		`{"a": NaN, "b": [Infinity,-Infinity], "c": "NaN, Infinity"}`: `{"a": null, "b": [1e+308,-1e+308], "c": "NaN, Infinity"}`,
		`NaN`: `null`, `-Infinity`: `-1e+308`,
		`[1e400, -1E400, 1e-400, 1e308, ` + long + `, -` + long + `, 18446744073709551615]`:      `[1e+308, -1e+308, 1e-400, 1e308, 1e+308, -1e+308, 18446744073709551615]`,
		`["\ud83d", "\ude00", "\ud83d\ude00", "\\ud83d", "\ud83d\ud83d\ude00", "\ud83dx\u00e4"]`: `["\ufffd", "\ufffd", "\ud83d\ude00", "\\ud83d", "\ufffd\ud83d\ude00", "\ufffdx\u00e4"]`,
		`"\"\ud800\"\\"`: `"\"\ufffd\"\\"`,
		`{"\ud800": 1}`:  `{"\ufffd": 1}`,
		`"\uDBFF"`:       `"\ufffd"`,
		`[`:              `[`,
		`, `:             `, `,
		``:               ``,
	} {
		assert.Equal(t, want, string(pyjson.Strict([]byte(in))), in)
	}
	same := []byte(`{"3": {"seed": 18446744073709551615, "x": "\u00e4\ud83d\ude00"}}`)
	assert.Same(t, &same[0], &pyjson.Strict(same)[0], "nothing is copied where nothing changes")
}

func TestFinite(t *testing.T) {
	t.Parallel()
	for in, want := range map[pyjson.Number]pyjson.Number{
		"7": "7", "7.5": "7.5", "-3": "-3", "1e+21": "1e+21", "NaN": "1e+308", "Infinity": "1e+308", "-Infinity": "-1e+308", "1e400": "1e+308", "": "0",
	} {
		assert.Equal(t, want, pyjson.Finite(in), in)
	}
}

// FuzzStrict: what Python reads, a strict parser reads afterwards, and the same.
func FuzzStrict(f *testing.F) {
	for _, text := range []string{
		`{"a": [1, -2.5e3, NaN, "x\"y\ud800", null, {"b": -Infinity}], "a\\": true, "": 1e999}`, `"\ud83d\ude00\udc00"`, `[1E+400]`, `NaN`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		out := pyjson.Strict(text) // any text at all ends
		tree, err := pyjson.Parse(text)
		if err != nil {
			return
		}
		var strict any
		require.NoError(t, json.Unmarshal(out, &strict), "%q became %q", text, out)
		again, err := pyjson.Parse(out)
		require.NoError(t, err)
		same, err := pyjson.Parse(pyjson.Strict(pyjson.Marshal(tree)))
		require.NoError(t, err)
		require.Equal(t, pyjson.Marshal(same), pyjson.Marshal(again))
		require.Equal(t, out, pyjson.Strict(out))
	})
}

func BenchmarkStrict(b *testing.B) {
	graph := []byte(`{"3": {"class_type": "KSampler", "inputs": {"seed": 156680208700286, "steps": 20, "cfg": 8.0, "sampler_name": "euler", "model": ["4", 0], "text": "beautiful scenery nature glass bottle landscape, purple galaxy bottle"}}},`)
	text := []byte(strings.Repeat(string(graph), 4000))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		pyjson.Strict(text)
	}
}
