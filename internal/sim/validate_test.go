package sim

import (
	"bufio"
	"bytes"
	"image"
	"image/color"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/image/webp"

	"github.com/comfyhub/comfyhub/internal/aiohttp/aiohttptest"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/testing/must"
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
		v := must.Get(pyjson.Parse([]byte(tt.in)))(t)
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
		v := must.Get(parseVersion(tt.version))(t)
		f := v.features()
		assert.Equal(t, []bool{tt.clientID, tt.targeted, tt.jobs, tt.uuid, tt.mask},
			[]bool{f.clientPromptID, f.targetedInterrupt, f.jobs, f.uuidPromptID, f.historyOffset}, tt.version)
	}
}

// As the source of 0.33.0 has it: comfy_extras/nodes_multigpu.py and nodes_model_advanced.py.
func TestClassesThatTakeAnyValue(t *testing.T) {
	v := must.Get(parseVersion("0.33.0"))(t)
	cat := must.Get(newCatalogue(Config{}, v.features()))(t)
	for class, node := range map[string]string{
		"SelectModelDevice": `"model":["1",0],"device":"gpu:1"`, "SelectCLIPDevice": `"clip":["1",1],"device":"gpu:1"`,
		"SelectVAEDevice": `"vae":["1",2],"device":"gpu:1"`, "ModelAttentionBackend": `"model":["1",0],"attention":"another"`,
		"ModelComputeDtype": `"model":["1",0],"dtype":"another"`, // refuses it
	} {
		graph := must.Get(pyjson.Parse([]byte(`{"1":{"class_type":"CheckpointLoaderSimple","inputs":{"ckpt_name":"a"}},
			"2":{"class_type":"` + class + `","inputs":{` + node + `}},"3":{"class_type":"PreviewAny","inputs":{"source":["2",0]}}}`)))(t)
		result, exc := validatePrompt(cat, &folders{base: t.TempDir(), feat: cat.feat}, graph, nil)
		require.Nil(t, exc)
		entry := result.errors.Object("2")
		require.Equal(t, class == "ModelComputeDtype", entry != nil, "%s: %s", class, pyjson.Marshal(result.errors))
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
		catalogues[newer] = must.Get(newCatalogue(Config{}, v.features()))(f)
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

// The web UI opens with all the classes of each listing: it reads these members of each without
// asking whether they are there.
func TestClassesAreWhole(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"0.3.64", "0.33.0", "0.38.1"} {
		v := must.Get(parseVersion(release))(t)
		c := must.Get(newCatalogue(Config{}, v.features()))(t)
		for name, entry := range c.info.All() {
			info := entry.(*pyjson.Object)
			require.Equal(t, name, info.String("name"), release)
			for _, member := range []string{"category", "display_name", "description"} {
				require.True(t, info.Has(member), "%s %s %s", release, name, member)
			}
			for _, list := range []string{"output_name", "output_is_list"} {
				require.Len(t, info.Array(list), len(info.Array("output")), "%s %s %s", release, name, list)
			}
			for _, in := range c.classes[name].inputs {
				if in.typeName() == "COMFY_MATCHTYPE_V3" {
					require.NotEmpty(t, in.options.Object("template").String("template_id"), "%s %s %s", release, name, in.name)
				}
			}
		}
	}
}

func TestWebPRoundTrip(t *testing.T) {
	for _, size := range []image.Point{{1, 1}, {3, 2}, {64, 48}} {
		img := paint(scene{texts: []string{"x"}, width: size.X, height: size.Y}, 0.5)
		img.SetNRGBA(0, 0, color.NRGBA{1, 2, 3, 4})
		decoded, err := webp.Decode(bytes.NewReader(encodeWebP(img)))
		require.NoError(t, err, "%v", size)
		assert.Equal(t, img.Pix, decoded.(*image.NRGBA).Pix, "%v", size)
	}
}

func TestPNGTexts(t *testing.T) {
	chunks := []pngText{{"prompt", `{"1": {}}`}, {"workflow", "{}"}}
	data := encodePNG(flat(3, 3, color.NRGBA{A: 255}), chunks)
	assert.Equal(t, chunks, pngTexts(data))
	_, _, err := image.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	assert.Empty(t, pngTexts(data[:40]))
}

// The simulator reads paths and queries like a real aiohttp, finds the same routes
// with the same parameters, and refuses the others in the same words.
func TestTargetsAsAiohttpReadsThem(t *testing.T) {
	t.Parallel()
	s := must.Get(New(Config{Version: "0.33.0", Dir: t.TempDir(), IndexPage: "x"}))(t)
	t.Cleanup(s.Close)
	routed, refused := 0, 0
	for _, row := range aiohttptest.Rows(t) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(row.Method + " " + row.Target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
		if err != nil || row.Status == http.StatusBadRequest || row.Path == "" {
			continue // Go answers 400 where aiohttp reads on, or both do
		}
		what := row.Method + " " + row.Target
		require.Equal(t, row.Path, pathSafe(r), what)
		handle, _ := match(s.routes, r, strings.Split(pathSafe(r), "/")[1:])
		require.Equal(t, row.Route != "", handle != nil, what)
		if handle != nil {
			routed++
			require.Equal(t, row.Values, values(s, r), what)
			want := url.Values{}
			for _, pair := range row.Query {
				want.Add(pair[0], pair[1])
			}
			require.Equal(t, want, query(r), what)
			continue
		}
		if row.Status == http.StatusForbidden {
			continue // a folder, which the simulator does not have
		}
		refused++
		w := httptest.NewRecorder()
		s.serve(w, r)
		require.Equal(t, row.Status, w.Code, what)
		require.Equal(t, row.Allow, w.Header().Get("Allow"), what)
		require.Equal(t, row.Body, w.Body.String(), what)
	}
	require.Greater(t, routed, 300)
	require.Greater(t, refused, 1000)
}

// values are the parameters of a matched request in the order of the route.
func values(s *Server, r *http.Request) (list []string) {
	for _, rt := range s.routes {
		params, ok := rt.params(strings.Split(pathSafe(r), "/")[1:])
		if !ok || rt.method != r.Method {
			continue
		}
		for _, segment := range rt.segments {
			if name, isParam := strings.CutPrefix(segment, "{"); isParam {
				list = append(list, params[strings.TrimRight(name, ".}")])
			}
		}
		return slices.Clip(list)
	}
	return nil
}
