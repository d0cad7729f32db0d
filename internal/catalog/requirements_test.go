package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
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
	again, err := catalog.DecodeRequirements(r.Encode())
	require.NoError(t, err)
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
	changed, err := g.Splice(edits)
	require.NoError(t, err)
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
	again, err := catalog.DecodeRequirements(needs.Encode())
	require.NoError(t, err)
	require.Equal(t, needs.Encode(), again.Encode())
	require.True(t, again.Unchecked)
	checked := fleet(parseInfo(t, custom)).Requirements(graph, nil, nil)
	require.False(t, checked.Unchecked)
	require.NotEqual(t, checked.Signature(), needs.Signature())
}
