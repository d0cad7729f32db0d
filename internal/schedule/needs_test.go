package schedule

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNeeds(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	p := Pair{"s", "k", "gpu"}
	s := Structure{Key: "s", Kind: "k", Work: 1}
	var n Needs
	require.Zero(t, n.Of(s, "gpu"), "nothing is known")
	for _, need := range []int64{6, 7, 6, 23} {
		n.Add(p, Need{Work: 1, Bytes: need * gib})
	}
	require.EqualValues(t, 7*gib, n.Of(s, "gpu"), "one odd run of four says nothing")
	require.Zero(t, n.Of(s, "other"))
	n.Add(p, Need{Work: 8, Bytes: 16 * gib})
	require.EqualValues(t, 7*gib, n.Of(s, "gpu"))
	require.EqualValues(t, 16*gib, n.Of(Structure{Key: "s", Kind: "k", Work: 6}, "gpu"), "a larger picture needs more")
	n.Set(p, []Need{{Work: 1, Bytes: gib}})
	n.Set(p, nil)
	n.Add(p, Need{Work: 1, Bytes: -1})
	require.EqualValues(t, gib, n.Of(s, "gpu"))
	require.EqualValues(t, gib, n.Of(Structure{Key: "s", Kind: "k", Work: 100}, "gpu"), "better than nothing")
	for range 2 * keptSamples {
		n.Add(p, Need{Work: 1, Bytes: 2 * gib})
	}
	require.Len(t, n.known[p], keptSamples)
	for range MaxCells + 5 {
		n.Add(Pair{Structure: strings.Repeat("x", len(n.known))}, Need{Work: 1, Bytes: gib})
	}
	require.LessOrEqual(t, len(n.known), MaxCells)
}

func TestNeedsAreStoredBesideDurations(t *testing.T) {
	t.Parallel()
	p := Pair{"s", "k", "gpu: one"}
	read, ok := ParseNeedField(NeedField(p))
	require.True(t, ok)
	require.Equal(t, p, read)
	_, ok = ParseNeedField(p.Field())
	require.False(t, ok)
	text := Need{Work: 1.5, Bytes: 3<<20 - 1}.Encode()
	require.Equal(t, "1.5@3", text)
	require.Equal(t, []Need{{1.5, 3 << 20}, {2, 4 << 20}}, DecodeNeeds(text+" 1w200 x@1 1@x 1@-1 NaN@1 2@4"))
	require.Empty(t, DecodeSamples(text), "an older hub learns no time from it")
}

func FuzzDecodeNeeds(f *testing.F) {
	f.Add("1.5@8192 1w200 1e9@99999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		needs := DecodeNeeds(text)
		require.LessOrEqual(t, len(needs), keptSamples)
		for _, n := range needs {
			require.Positive(t, n.Bytes)
			require.Len(t, DecodeNeeds(n.Encode()), 1)
		}
	})
}
