package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
)

// bodies are n object_info bodies of which all but different are equal. The
// others have one checkpoint of their own.
func bodies(tb testing.TB, n, different int) [][]byte {
	tb.Helper()
	common := infoBody(tb, newer)
	const list = `[], {"tooltip": "The name of the checkpoint`
	require.Contains(tb, string(common), list)
	var out [][]byte
	for i := range n {
		if i >= different {
			out = append(out, common)
			continue
		}
		own := fmt.Sprintf(`["%d.safetensors"], {"tooltip": "The name of the checkpoint`, i)
		out = append(out, []byte(strings.ReplaceAll(string(common), list, own)))
	}
	return out
}

// BenchmarkFleet parses and merges the infos of a hundred instances.
func BenchmarkFleet(b *testing.B) {
	for _, different := range []int{5, 100} {
		list := bodies(b, 100, different)
		b.Run(fmt.Sprintf("different=%d", different), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				library := catalog.NewLibrary()
				var sources []catalog.Source
				for _, body := range list {
					i, err := library.Parse(body)
					if err != nil {
						b.Fatal(err)
					}
					sources = append(sources, catalog.Source{Info: i})
				}
				catalog.Merge(nil, sources)
			}
		})
	}
}

// BenchmarkMergeAgain merges a hundred different infos after one changed.
func BenchmarkMergeAgain(b *testing.B) {
	library := catalog.NewLibrary()
	var sources []catalog.Source
	for _, body := range bodies(b, 101, 101) {
		i, err := library.Parse(body)
		require.NoError(b, err)
		sources = append(sources, catalog.Source{Info: i})
	}
	before := catalog.Merge(nil, sources[:100])
	b.ReportAllocs()
	for b.Loop() {
		catalog.Merge(before, sources[1:])
	}
}

// chain is a graph of n nodes in a row.
func chain(n int) string {
	var b strings.Builder
	b.WriteString(`{"0":{"class_type":"EmptyImage","inputs":{"width":64,"height":64,"batch_size":1,"color":0}}`)
	for i := range n - 2 {
		fmt.Fprintf(&b, `,"%d":{"class_type":"ImageScale","inputs":{"image":["%d",0],"upscale_method":"area","width":512,"height":512.0,"crop":"disabled"}}`, i+1, i)
	}
	fmt.Fprintf(&b, `,"%d":{"class_type":"SaveImage","inputs":{"images":["%d",0],"filename_prefix":"ComfyUI"}}}`, n-1, n-2)
	return b.String()
}

func BenchmarkValidate(b *testing.B) {
	cat := fleet(info(b, newer))
	body := []byte(`{"prompt":` + chain(100) + `}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		request, err := catalog.ParseRequest(body)
		if err != nil {
			b.Fatal(err)
		}
		if v := cat.Validate(catalog.Prompt{Graph: request.Graph, Version: newer}); !v.Accepted() {
			b.Fatal(v.NodeErrors)
		}
	}
}

func BenchmarkRequirements(b *testing.B) {
	cat := fleet(info(b, newer))
	g, err := catalog.ParseGraph([]byte(chain(100)))
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		cat.Requirements(g, []string{"99"}, nil).Signature()
	}
}

func BenchmarkObjectInfo(b *testing.B) {
	cat := fleet(info(b, newer))
	b.ReportAllocs()
	for b.Loop() {
		cat.ObjectInfo(catalog.Uploads{"a.png"}).Body()
	}
}
