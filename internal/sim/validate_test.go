package sim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func TestCoercion(t *testing.T) {
	tests := []struct{ kind, in, want, raises string }{
		{"INT", `3.7`, `3`, ""},
		{"INT", `" 1_000 "`, `1000`, ""},
		{"INT", `true`, `1`, ""},
		{"INT", `1e30`, `1000000000000000019884624838656`, ""},
		{"INT", `"3.7"`, ``, "invalid literal for int() with base 10: '3.7'"},
		{"INT", `NaN`, ``, "cannot convert float NaN to integer"},
		{"INT", `null`, ``, "int() argument must be a string, a bytes-like object or a real number, not 'NoneType'"},
		{"FLOAT", `"nan"`, `NaN`, ""},
		{"FLOAT", `"1e5"`, `100000.0`, ""},
		{"FLOAT", `7`, `7.0`, ""},
		{"FLOAT", `"x"`, ``, "could not convert string to float: 'x'"},
		{"STRING", `[1]`, `"[1]"`, ""},
		{"BOOLEAN", `"false"`, `true`, ""},
		{"BOOLEAN", `0`, `false`, ""},
	}
	for _, tt := range tests {
		v, err := pyjson.Parse([]byte(tt.in))
		require.NoError(t, err)
		got, exc := coerce(tt.kind, v)
		if tt.raises != "" {
			require.NotNil(t, exc, "%s of %s", tt.kind, tt.in)
			assert.Equal(t, tt.raises, exc.message)
			continue
		}
		require.Nil(t, exc, "%s of %s", tt.kind, tt.in)
		assert.Equal(t, tt.want, string(pyjson.Marshal(got)), "%s of %s", tt.kind, tt.in)
	}
}

func TestVersions(t *testing.T) {
	tests := []struct {
		version                              string
		clientID, targeted, jobs, uuid, mask bool
	}{
		{"0.3.44", false, false, false, false, false},
		{"0.3.56", true, false, false, false, false},
		{"v0.3.64-12-gabc", true, true, false, false, true},
		{"0.24", true, true, true, false, true},
		{"0.33.0", true, true, true, true, true},
	}
	for _, tt := range tests {
		v, err := parseVersion(tt.version)
		require.NoError(t, err)
		f := v.features()
		assert.Equal(t, []bool{tt.clientID, tt.targeted, tt.jobs, tt.uuid, tt.mask},
			[]bool{f.clientPromptID, f.targetedInterrupt, f.jobs, f.uuidPromptID, f.historyOffset}, tt.version)
	}
}

// FuzzValidate runs the prompt validation on arbitrary graphs. It must end, and
// the outputs that it accepts must exist.
func FuzzValidate(f *testing.F) {
	for _, graph := range []string{
		`{"1":{"class_type":"EmptyImage","inputs":{"width":64,"height":"64","batch_size":1,"color":0}},
		  "2":{"class_type":"SaveImage","inputs":{"images":["1",0],"filename_prefix":"t"}}}`,
		`{"1":{"class_type":"ImageInvert","inputs":{"image":["1",0]}},"2":{"class_type":"SaveImage","inputs":{"images":["1",0],"filename_prefix":{"__value__":[]}}}}`,
		`{"2":{"class_type":"BatchImagesNode","inputs":{"images.image0":[1,-1]}},"3":{"class_type":"PreviewImage","inputs":{"images":["2","0"]}}}`,
		`[]`, `{"1":"class_type"}`, `{"1":{"class_type":["a"]}}`, `{"1":{"class_type":"SaveImage","inputs":null}}`,
	} {
		f.Add([]byte(graph), true)
		f.Add([]byte(graph), false)
	}
	catalogues := map[bool]*catalogue{}
	for newer, text := range map[bool]string{false: "0.3.64", true: "0.33.0"} {
		v, err := parseVersion(text)
		require.NoError(f, err)
		catalogues[newer], err = newCatalogue(Config{}, v.features())
		require.NoError(f, err)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, newer bool) {
		graph, err := pyjson.Parse(data)
		if err != nil {
			return
		}
		cat := catalogues[newer]
		if newer && replaceNodes(cat, graph) != nil {
			return
		}
		result, exc := validatePrompt(cat, &folders{base: dir, feat: cat.feat}, graph, nil)
		if exc != nil {
			return
		}
		if (result.problem == nil) != (len(result.outputs) > 0) {
			t.Fatalf("problem %v with outputs %v", result.problem, result.outputs)
		}
		for _, id := range result.outputs {
			if !graph.(*pyjson.Object).Has(id) {
				t.Fatalf("output %q is not in the graph", id)
			}
		}
	})
}
