package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func TestInputFiles(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	graph := parseGraph(t, `{"1":{"class_type":"LoadImage","inputs":{"image":"broken.png","upload":"image"}},
		"2":{"class_type":"LoadImage","inputs":{"image":["1",0]}},
		"3":{"class_type":"Load3D","inputs":{"model_file":"none","image":{"image":"threed/a.png [temp]","mask":"threed/b.png [temp]","n":1},"width":1,"height":1}},
		"4":{"class_type":"SetNode","inputs":{"images":{"__value__":["x.png","up.png","a text. Really"]},"text":"up.png is nice","also":"up.png"}},
		"5":{"class_type":"Other","inputs":{"any":"s/x.wav [output]"}},
		"9":{"class_type":"PreviewAny","inputs":{"source":["1",0]}}}`)
	known := func(r job.FileRef) bool { return r.Filename == "up.png" }
	names := func(files []catalog.InputFile) (list []string) {
		for _, f := range files {
			list = append(list, f.Node+"."+f.Input+"="+f.Value)
		}
		return list
	}
	files := cat.InputFiles(graph, nil, known)
	require.Equal(t, []string{
		"1.image=broken.png", "3.image=threed/a.png [temp]", "3.image=threed/b.png [temp]",
		"4.images=up.png", "4.also=up.png", "5.any=s/x.wav [output]",
	}, names(files))
	require.True(t, files[0].Listed)
	require.False(t, files[1].Listed)
	require.Equal(t, []string{"1.image=broken.png"}, names(cat.InputFiles(graph, []string{"9"}, known)), "only what the outputs need")
	require.NotContains(t, names(cat.InputFiles(graph, nil, nil)), "4.also=up.png")

	var edits []catalog.Edit
	for _, f := range files {
		edits = append(edits, f.Rename("NEW"))
	}
	changed, err := graph.Splice(edits)
	require.NoError(t, err)
	require.Equal(t, len(files), countText(t, changed, "NEW"))
	require.Equal(t, []string{"1.image=NEW"}, names(cat.InputFiles(changed, []string{"9"}, known)))
	require.Equal(t, "broken.png", files[0].Value, "the old graph is as it was")
}

func countText(t *testing.T, g *catalog.Graph, text string) int {
	v, err := pyjson.Parse(g.Bytes())
	require.NoError(t, err)
	n := 0
	var walk func(pyjson.Value)
	walk = func(v pyjson.Value) {
		switch v := v.(type) {
		case pyjson.String:
			if string(v) == text {
				n++
			}
		case pyjson.Array:
			for _, item := range v {
				walk(item)
			}
		case *pyjson.Object:
			for _, item := range v.All() {
				walk(item)
			}
		}
	}
	walk(v)
	return n
}
