package dispatch

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
)

// described returns what an instance with some node classes can run.
func described(t testing.TB, nodes ...string) *catalog.Info {
	t.Helper()
	body := `{"Common":{"input":{"required":{}}}`
	for _, node := range nodes {
		body += fmt.Sprintf(`,%q:{"input":{"required":{}}}`, node)
	}
	return must(catalog.Parse([]byte(body + "}")))
}

func needing(nodes ...string) []byte { return catalog.Requirements{Classes: nodes}.Encode() }

// What is remembered is what an instance would say, also after its abilities changed.
func TestJudgements(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		classes := map[string][]byte{
			"common": needing("Common"), "video": needing("Common", "Video"), "none": needing("Nowhere"), "newer": []byte("{"),
		}
		plain, video := described(t), described(t, "Video")
		var js judgements
		for range 2 {
			idle := []Idle{{Name: "a"}, {Name: "b"}, {Name: "c"}}
			wanted := js.able(idle, []*catalog.Info{plain, video, described(t)}, classes)
			require.ElementsMatch(t, []string{"none", "newer"}, wanted.But)
			require.Equal(t, map[string]bool{"common": true}, idle[0].Classes)
			require.Equal(t, map[string]bool{"common": true, "video": true}, idle[1].Classes)
			require.Equal(t, map[string]bool{"common": true}, idle[2].Classes)
			require.Equal(t, 6, js.count, "once for each pair")
		}
		idle := []Idle{{Name: "a"}}
		require.ElementsMatch(t, []string{"video", "none", "newer"}, js.able(idle, []*catalog.Info{plain}, classes).But)
		require.ElementsMatch(t, []string{"video", "newer"}, js.able(idle, []*catalog.Info{described(t, "Nowhere")}, classes).But)

		left := js.none([]*catalog.Info{plain, nil, video}, classes)
		require.Len(t, left, 2)
		require.Contains(t, left, "none")
		require.Contains(t, left, "newer")
		require.Len(t, classes, 4)
		require.Len(t, js.none(nil, classes), 4)
	})
}

func TestJudgementsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var js judgements
		info := described(t)
		for n := range maxJudgements + 10 {
			js.keep(info.Profile(), fmt.Sprint(n), true)
		}
		require.Len(t, js.known[info.Profile()], 10)
	})
}

// BenchmarkAble judges a thousand classes for 500 idle instances of 20 profiles.
func BenchmarkAble(b *testing.B) {
	classes := map[string][]byte{}
	for n := range 1000 {
		classes[fmt.Sprint("class", n)] = needing("Common", fmt.Sprint("Node", n%20))
	}
	idle, infos := make([]Idle, 500), make([]*catalog.Info, 500)
	for n := range infos {
		infos[n] = described(b, fmt.Sprint("Node", n%20))
	}
	b.Run("remembered", func(b *testing.B) {
		var js judgements
		for b.Loop() {
			js.able(idle, infos, classes)
		}
	})
	b.Run("each", func(b *testing.B) {
		for b.Loop() {
			for _, encoded := range classes {
				needs := must(catalog.DecodeRequirements(encoded))
				for _, info := range infos {
					info.Satisfies(needs)
				}
			}
		}
	})
}
