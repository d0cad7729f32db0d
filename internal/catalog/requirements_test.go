package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// sampling is a class with an enumeration, such as the names of samplers.
func sampling(samplers string, models string) string {
	return `{"Sample":{"input":{"required":{"sampler":[[` + samplers + `]],"model":[[` + models + `]]},"optional":{"n":["COMBO",{"options":[1,2.0,true]}]}},` +
		`"output":[],"output_node":true,"python_module":"nodes"}}`
}

func requirements(t *testing.T, cat *catalog.Catalog, graph string) catalog.Requirements {
	t.Helper()
	verdict := validate(t, cat, newer, graph)
	require.True(t, verdict.Accepted(), "%s", marshal(verdict.NodeErrors))
	r := cat.Requirements(verdict.Graph, verdict.Outputs, nil)
	again := must.Get(catalog.DecodeRequirements(r.Encode()))(t)
	require.Equal(t, r.Encode(), again.Encode())
	require.Equal(t, r.Signature(), again.Signature())
	return again
}

func TestRequirements(t *testing.T) {
	t.Parallel()
	a := parseInfo(t, sampling(`"euler","heun"`, `"x.pt","y.pt"`))
	b := parseInfo(t, sampling(`"euler","heun","new"`, `"x.pt"`))
	cat := fleet(a, b)
	job := func(sampler, model string) catalog.Requirements {
		return requirements(t, cat, `{"1":{"class_type":"Sample","inputs":{"sampler":"`+sampler+`","model":"`+model+`"}}}`)
	}

	common := job("euler", "x.pt")
	require.Equal(t, []string{"Sample"}, common.Classes)
	require.Equal(t, []catalog.Choice{{Class: "Sample", Input: "model", Value: "x.pt"}}, common.Choices)
	require.Equal(t, []catalog.List{{Class: "Sample", Input: "sampler", Options: []string{"euler", "heun"}}}, common.Lists)
	require.Equal(t, common.Signature(), job("heun", "x.pt").Signature(), "the choice of a sampler does not matter")
	require.Empty(t, a.Satisfies(common))
	require.Empty(t, b.Satisfies(common))

	require.Equal(t, []string{"Sample.model: y.pt"}, b.Satisfies(job("euler", "y.pt")))
	require.Equal(t, []string{"Sample.sampler: new"}, a.Satisfies(job("new", "x.pt")))
	require.NotEqual(t, common.Signature(), job("new", "x.pt").Signature())

	late := parseInfo(t, sampling(`"euler"`, `"x.pt"`))
	require.Equal(t, []string{"Sample.sampler: heun"}, late.Satisfies(common), "an instance that joins later must have what was left out")
	require.Equal(t, []string{"node class Sample"}, parseInfo(t, `{}`).Satisfies(common))
}

func TestRequirementsOfAbsentInstances(t *testing.T) {
	t.Parallel()
	here, gone := parseInfo(t, loader(true, "a.pt")), parseInfo(t, loader(true, "b.pt"))
	cat := catalog.Merge(nil, []catalog.Source{{Info: here}, {Info: gone, Absent: true}})
	graph := `{"1":{"class_type":"Loader","inputs":{"name":"b.pt","strength":1}}}`
	r := cat.Requirements(parseGraph(t, graph), nil, nil)
	require.Equal(t, []string{"Loader.name: b.pt"}, here.Satisfies(r))
	require.Empty(t, gone.Satisfies(r))
}

func TestRequirementsFollowTheOutputs(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	graph := parseGraph(t, `{"1":{"class_type":"EmptyImage","inputs":{"width":64,"height":64,"batch_size":1,"color":0}},
		"2":{"class_type":"ImageScale","inputs":{"image":["1",0],"upscale_method":"area","width":8,"height":8,"crop":"disabled"}},
		"3":{"class_type":"PreviewImage","inputs":{"images":["2",0]}},"4":{"class_type":"PreviewImage","inputs":{"images":["1",0]}}}`)
	r := cat.Requirements(graph, []string{"4"}, nil)
	require.Equal(t, []string{"EmptyImage", "ImageScale", "PreviewImage"}, r.Classes, "the class of every node must be known")
	require.Empty(t, r.Lists, "but nobody looks at the values of others")
	r = cat.Requirements(graph, []string{"3"}, nil)
	require.Len(t, r.Lists, 2)
}

func TestRequirementsOfFiles(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	graph := func(name string) *catalog.Graph {
		return parseGraph(t, image(`"1":{"class_type":"LoadImage","inputs":{"image":"`+name+`"}}`))
	}
	known := func(r job.FileRef) bool { return r.Filename == "mine.png" }
	require.Empty(t, cat.Requirements(graph("mine.png"), nil, known).Choices, "it is pushed")
	require.Empty(t, cat.Requirements(graph("broken.png"), nil, nil).Choices)
	require.Equal(t, []catalog.Choice{{Class: "LoadImage", Input: "image", Value: "broken.png"}},
		cat.Requirements(graph("broken.png"), nil, known).Choices, "only the instance has it")
	require.Empty(t, cat.Requirements(graph("none.png"), nil, known).Choices, "nobody has it")
}

func TestRequirementsOfWrappedLists(t *testing.T) {
	t.Parallel()
	cat := fleet(parseInfo(t, loader(false, "a.pt", "b.pt", "c.pt")))
	for value, want := range map[string][]catalog.Choice{
		`{"__value__":["a.pt","c.pt"]}`: {{Class: "Loader", Input: "name", Value: "a.pt"}, {Class: "Loader", Input: "name", Value: "c.pt"}},
		`{"__value__":"b.pt"}`:          {{Class: "Loader", Input: "name", Value: "b.pt"}},
		`{"other":"b.pt"}`:              nil,
		`["a.pt",0]`:                    nil,
	} {
		r := cat.Requirements(parseGraph(t, `{"1":{"class_type":"Loader","inputs":{"name":`+value+`}}}`), nil, nil)
		require.Equal(t, want, r.Choices, value)
	}
}

func TestSpelling(t *testing.T) {
	t.Parallel()
	windows, linux := parseInfo(t, loader(true, `sub\a.pt`, "b.pt")), parseInfo(t, loader(true, "sub/a.pt"))
	cat := fleet(linux, windows)
	for _, sent := range []string{`sub/a.pt`, `sub\\a.pt`} {
		r := cat.Requirements(parseGraph(t, `{"1":{"class_type":"Loader","inputs":{"name":"`+sent+`","strength":1}}}`), nil, nil)
		require.Equal(t, []catalog.Choice{{Class: "Loader", Input: "name", Value: "sub/a.pt"}}, r.Choices)
		require.Empty(t, windows.Satisfies(r))
		require.Empty(t, linux.Satisfies(r))
	}
	own, ok := windows.Spelling("Loader", "name", "sub/a.pt")
	require.True(t, ok)
	require.Equal(t, `sub\a.pt`, own)
	own, ok = linux.Spelling("Loader", "name", `sub\a.pt`)
	require.True(t, ok)
	require.Equal(t, "sub/a.pt", own)
	_, ok = linux.Spelling("Loader", "name", "b.pt")
	require.False(t, ok)
	_, ok = linux.Spelling("Loader", "strength", "b.pt")
	require.False(t, ok)
	_, ok = linux.Spelling("None", "name", "b.pt")
	require.False(t, ok)
}

func TestRespell(t *testing.T) {
	t.Parallel()
	windows := parseInfo(t, loader(true, `sub\a.pt`, `s\b.pt`, `s/b.pt`))
	g := parseGraph(t, `{"1":{"class_type":"Loader","inputs":{"name":"sub/a.pt" ,"strength":1}},"2":{"class_type":"Loader","inputs":{"name":"s/b.pt"}},
		"3":{"class_type":"Loader","inputs":{"name":{"__value__":["sub/a.pt","x"]}}},"4":{"class_type":"Loader","inputs":{"name":["1",0]}}}`)
	edits := windows.Respell(g, nil)
	changed := must.Get(g.Splice(edits))(t)
	require.Equal(t, `{"1":{"class_type":"Loader","inputs":{"name":"sub\\a.pt" ,"strength":1}},"2":{"class_type":"Loader","inputs":{"name":"s/b.pt"}},
		"3":{"class_type":"Loader","inputs":{"name":{"__value__":["sub\\a.pt","x"]}}},"4":{"class_type":"Loader","inputs":{"name":["1",0]}}}`, string(changed.Bytes()))
	require.Len(t, windows.Respell(g, []string{"1"}), 1)
	require.Empty(t, parseInfo(t, loader(true, "sub/a.pt")).Respell(g, nil))
}

func TestDecodeRequirementsRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{``, `{}`, `[]`, `{"v":4}`, `{"v":1,"classes":[5]}`, `{"v":1,"choices":[["a","b"]]}`, `{"v":1,"choices":[["a","b",1]]}`, `{"v":1,"lists":[["a","b","c"]]}`, `{"v":1,"variants":[5]}`} {
		_, err := catalog.DecodeRequirements([]byte(bad))
		require.ErrorIs(t, err, catalog.ErrRequirements, bad)
	}
}

func FuzzDecodeRequirements(f *testing.F) {
	f.Add([]byte(`{"v":1,"classes":["A"],"variants":[["A",["00"]]],"choices":[["A","b","c"]],"lists":[["A","b",["c"]]],"later":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := catalog.DecodeRequirements(data)
		if err != nil {
			return
		}
		again, err := catalog.DecodeRequirements(r.Encode())
		if err != nil || again.Signature() != r.Signature() {
			t.Fatalf("%q: %v", data, err)
		}
		info(t, older).Satisfies(r)
	})
}

// A prompt that is accepted before any class is known is marked, also for other hubs.
func TestUncheckedRequirements(t *testing.T) {
	t.Parallel()
	graph := parseGraph(t, `{"1":{"class_type":"Load","inputs":{}}}`)
	needs := fleet().Requirements(graph, nil, nil)
	require.True(t, needs.Unchecked)
	again := must.Get(catalog.DecodeRequirements(needs.Encode()))(t)
	require.Equal(t, needs.Encode(), again.Encode())
	require.True(t, again.Unchecked)
	checked := fleet(parseInfo(t, custom)).Requirements(graph, nil, nil)
	require.False(t, checked.Unchecked)
	require.NotEqual(t, checked.Signature(), needs.Signature())
}

func TestShape(t *testing.T) {
	t.Parallel()
	const graph = `{"1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "sd15.safetensors"}},
		"2": {"class_type": "CLIPTextEncode", "inputs": {"text": "a cat", "clip": ["1", 1]}},
		"3": {"class_type": "EmptyLatentImage", "inputs": {"width": 512, "height": 512, "batch_size": 1}},
		"4": {"class_type": "KSampler", "inputs": {"seed": 5, "steps": 20, "model": ["1", 0], "positive": ["2", 0]}}}`
	shape := catalog.Shape([]byte(graph))
	require.NotEmpty(t, shape)
	for change, same := range map[string]bool{
		"a cat|a dog": true, `"seed": 5|"seed": 18446744073709551615`: true, `"1": {|"1":  {`: true,
		"sd15|sdxl": false, `"width": 512|"width": 2048`: false, `["2", 0]|["2", 1]`: false, "KSampler|KSamplerAdvanced": false,
	} {
		from, to, _ := strings.Cut(change, "|")
		changed := strings.Replace(graph, from, to, 1)
		require.NotEqual(t, graph, changed)
		require.Equal(t, same, shape == catalog.Shape([]byte(changed)), change)
	}
	require.Empty(t, catalog.Shape([]byte("[")))
}

const lessonGraph = `{"1":{"class_type":"Load","inputs":{"name":"c.pt","n":10}},"2":{"class_type":"Show","inputs":{"thing":["1",0]}}}`

// refusals are an instance's node_errors with one error of one node.
func refusals(node, class, kind, extra string) string {
	return fmt.Sprintf(`{%q: {"errors": [{"type": %q, "message": "", "details": "", "extra_info": %s}], "dependent_outputs": ["2"], "class_type": %q}}`,
		node, kind, extra, class)
}

func TestLessons(t *testing.T) {
	i := parseInfo(t, custom)
	value := catalog.Question{Class: "Load", Input: "n"}
	link := catalog.Question{Class: "Show", Input: "thing", Source: "Load", Type: "THING"}
	type row struct {
		errors string
		want   []catalog.Question
	}
	beside.Cases(t, map[string]row{
		"a bound":               {refusals("1", "Load", "value_bigger_than_max", `{"input_name": "n", "received_value": 10}`), []catalog.Question{value}},
		"a list":                {refusals("1", "Load", "value_not_in_list", `{"input_name": "name"}`), []catalog.Question{{Class: "Load", Input: "name"}}},
		"a link":                {refusals("2", "Show", "return_type_mismatch", `{"input_name": "thing", "received_type": "THING", "linked_node": ["1", 0]}`), []catalog.Question{link}},
		"the class's own check": {refusals("1", "Load", "custom_validation_failed", `{"input_name": "n"}`), nil},
		"no input":              {refusals("1", "Load", "value_bigger_than_max", `{}`), nil},
		"a link to nowhere":     {refusals("2", "Show", "return_type_mismatch", `{"input_name": "thing", "received_type": "THING", "linked_node": ["7", 0]}`), nil},
		"half a link":           {refusals("2", "Show", "return_type_mismatch", `{"input_name": "thing", "received_type": "THING", "linked_node": ["1"]}`), nil},
		"a node not asked for":  {refusals("7", "Load", "value_bigger_than_max", `{"input_name": "n"}`), nil},
		"another class":         {refusals("1", "Show", "value_bigger_than_max", `{"input_name": "n"}`), nil},
		"no errors":             {`{"1": {"class_type": "Load"}}`, nil},
		"a list of nodes":       {`[]`, nil},
		"no JSON":               {`{"1": `, nil},
	}, func(t *testing.T, c row) {
		var want []string
		for _, q := range c.want {
			lesson, ok := i.Lesson(q)
			require.True(t, ok)
			want = append(want, lesson)
		}
		require.Equal(t, want, i.Lessons([]byte(lessonGraph), []byte(c.errors)))
	})
}

// A lesson is of the exact description of a class: with another one it is not known.
func TestLessonOfAnotherDescription(t *testing.T) {
	t.Parallel()
	q := catalog.Question{Class: "Show", Input: "thing", Source: "Load", Type: "THING"}
	lesson, ok := parseInfo(t, custom).Lesson(q)
	require.True(t, ok)
	for _, change := range []string{`"max":9`, `"OTHER"`} { // of the source, of the class
		other, ok := parseInfo(t, strings.Replace(custom, change, strings.Replace(strings.Replace(change, "9", "8", 1), "OTHER", "THIRD", 1), 1)).Lesson(q)
		require.True(t, ok)
		require.NotEqual(t, lesson, other, change)
	}
	_, ok = parseInfo(t, custom).Lesson(catalog.Question{Class: "None", Input: "n"})
	require.False(t, ok)
}

// device is a class of ComfyUI's own that comes with the extras, and may take more than it lists.
func device(name, options string) string {
	return `{"` + name + `":{"input":{"required":{"device":["COMBO",{"options":[` + options + `]}],"n":["INT",{"max":9}]}},"output":[],"output_node":true,"python_module":"comfy_extras.nodes_x"}}`
}

// ComfyUI's extras are asked before a value is refused that they do not list, once for all
// instances of a version, whatever files these have.
func TestExtrasJudgeTheirLists(t *testing.T) {
	t.Parallel()
	one, other := parseInfo(t, device("Pick", `"cpu"`)), parseInfo(t, device("Pick", `"cpu","gpu:0"`))
	const graph = `{"1":{"class_type":"Pick","inputs":{"device":"gpu:1","n":1}}}`
	prompt := catalog.Prompt{Graph: parseGraph(t, graph), Version: newer}
	verdict := fleet(one, other).Validate(prompt)
	require.True(t, verdict.Accepted())
	require.True(t, verdict.Doubtful)
	require.Equal(t, []string{"1: value_not_in_list"}, verdict.Unsure)
	require.False(t, validate(t, fleet(one), newer, strings.Replace(graph, `"n":1`, `"n":10`, 1)).Accepted(), "bounds are not in doubt")

	lessons := one.Lessons([]byte(graph), []byte(refusals("1", "Pick", "value_not_in_list", `{"input_name": "device"}`)))
	require.Len(t, lessons, 1)
	require.True(t, catalog.OfComfyUI(lessons[0]))
	require.Empty(t, one.Lessons([]byte(graph), []byte(refusals("1", "Pick", "value_bigger_than_max", `{"input_name": "n"}`))))
	same, ok := other.Lesson(catalog.Question{Class: "Pick", Input: "device"})
	require.True(t, ok)
	require.Equal(t, lessons[0], same)
	prompt.Makes = func(q catalog.Question) bool { return q == catalog.Question{Class: "Pick", Input: "device"} }
	require.False(t, fleet(one, other).Validate(prompt).Accepted())
}

// A class that is known to take any value is not asked, and a machine that lists the value is no better.
func TestAnyDevice(t *testing.T) {
	t.Parallel()
	one, other := parseInfo(t, device("SelectModelDevice", `"cpu","gpu:0","gpu:1"`)), parseInfo(t, device("SelectModelDevice", `"cpu"`))
	cat := fleet(one, other)
	graph := parseGraph(t, `{"1":{"class_type":"SelectModelDevice","inputs":{"device":"gpu:1","n":1}}}`)
	needs := cat.Requirements(graph, nil, nil)
	require.Empty(t, needs.Choices)
	require.Empty(t, needs.Lists)
	require.Empty(t, other.Satisfies(needs))
	prompt := catalog.Prompt{Graph: parseGraph(t, `{"1":{"class_type":"SelectModelDevice","inputs":{"device":"gpu:7","n":1}}}`), Version: newer}
	prompt.Makes = func(catalog.Question) bool { return true }
	require.True(t, cat.Validate(prompt).Accepted())
}

// Other classes of ComfyUI's own are checked by the hub itself, so nothing is learnt of them.
func TestNoLessonsOfComfyUIsOwnClasses(t *testing.T) {
	t.Parallel()
	errors := refusals("1", "EmptyImage", "value_bigger_than_max", `{"input_name": "width"}`)
	require.Empty(t, info(t, older).Lessons([]byte(`{"1":{"class_type":"EmptyImage","inputs":{"width":100000}}}`), []byte(errors)))
}

// One refusal teaches a bounded number of lessons, whatever an instance says.
func FuzzLessons(f *testing.F) {
	f.Add([]byte(lessonGraph), []byte(refusals("1", "Load", "value_bigger_than_max", `{"input_name": "n"}`)))
	f.Add([]byte(lessonGraph), []byte(refusals("2", "Show", "return_type_mismatch", `{"input_name": "thing", "received_type": "THING", "linked_node": ["1", 0]}`)))
	many := strings.Repeat(`{"type": "value_bigger_than_max", "extra_info": {"input_name": "n"}},`, 200)
	f.Add([]byte(lessonGraph), []byte(`{"1": {"errors": [`+many+`null], "class_type": "Load"}}`))
	i := must.Get(catalog.Parse([]byte(custom)))(f)
	f.Fuzz(func(t *testing.T, graph, nodeErrors []byte) {
		if got := len(i.Lessons(graph, nodeErrors)); got > 100 {
			t.Fatalf("%d lessons", got)
		}
	})
}
