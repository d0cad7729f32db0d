package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func TestSpending(t *testing.T) {
	t.Parallel()
	var l Spending
	p := Pair{Structure: "s", Kind: "k", GPU: "4090"}
	s := Structure{Key: "s", Kind: "k"}
	_, _, runs := l.Of(s, "4090")
	require.Zero(t, runs)

	l.Add(p, Spent{"KSampler": 3 * time.Second, "VAE Decode": time.Second})
	l.Add(p, Spent{"KSampler": 5 * time.Second})
	mean, least, runs := l.Of(s, "4090")
	require.Equal(t, 2, runs)
	require.Equal(t, Spent{"KSampler": 4 * time.Second, "VAE Decode": 500 * time.Millisecond}, mean)
	require.Equal(t, Spent{"KSampler": 3 * time.Second, "VAE Decode": time.Second}, least, "of the runs that had any")
	mean, _, _ = l.Of(s, "another GPU")
	require.Equal(t, 4*time.Second, mean["KSampler"], "better than nothing")
	_, _, runs = l.Of(Structure{Key: "s", Kind: "another"}, "4090")
	require.Zero(t, runs)

	for range 2 * keptSamples {
		l.Add(p, Spent{"KSampler": time.Second})
	}
	mean, _, runs = l.Of(s, "4090")
	require.Equal(t, keptSamples, runs)
	require.Equal(t, Spent{"KSampler": time.Second}, mean)
}

func TestSpentOfACachedRun(t *testing.T) {
	t.Parallel()
	v, err := pyjson.Parse([]byte(`{"load": {"class_type": "Loader"}, "short": {"class_type": "KSampler", "inputs": {"steps": 10}},
		"long": {"class_type": "KSampler", "inputs": {"steps": 30}}, "save": {"class_type": "SaveImage"}}`))
	require.NoError(t, err)
	graph := v.(*pyjson.Object)
	s := Spent{"KSampler": 8 * time.Second, "SaveImage": 2 * time.Second, "InAnotherGraph": time.Hour}
	for want, cached := range map[float64][]string{1: {"load"}, 0.8: {"load", "short"}, 0.4: {"long"}, 0.2: {"load", "short", "long", "gone"}} {
		require.InDelta(t, want, s.Done(graph, cached), 1e-9, cached)
	}
	require.InDelta(t, 1, s.Done(nil, nil), 0)
	require.InDelta(t, 1, Spent{}.Done(graph, []string{"long"}), 0, "nobody knows")
}

func TestSpentIsStored(t *testing.T) {
	t.Parallel()
	s := Spent{"Load Image (any)": 1500 * time.Millisecond, "K&=Sampler é": 12 * time.Second, "short": 10 * time.Microsecond, strings.Repeat("x", 200): time.Hour}
	text := s.Encode()
	require.NotContains(t, text, " ")
	require.Equal(t, []Spent{{"Load Image (any)": 1500 * time.Millisecond, "K&=Sampler é": 12 * time.Second}}, DecodeSpents("%zz "+text+" a=b&c=-1 d=99999999999999"))

	many := Spent{}
	for n := range 100 {
		many[strings.Repeat("y", n+1)] = time.Duration(n+1) * time.Second
	}
	kept := DecodeSpents(many.Encode())[0]
	require.Len(t, kept, spentClasses)
	require.Contains(t, kept, strings.Repeat("y", 100), "the longest stay")

	p := Pair{Structure: "s", Kind: "k", GPU: "a:b c"}
	back, ok := ParseSpentField(SpentField(p))
	require.True(t, ok)
	require.Equal(t, p, back)
	_, ok = ParseSpentField(NeedField(p))
	require.False(t, ok)
	last, ok := ParsePair(SpentField(p)) // as a hub of the last version reads it
	require.True(t, ok)
	require.NotEqual(t, p, last)
	require.Empty(t, DecodeSamples(text))
}

func FuzzDecodeSpents(f *testing.F) {
	f.Add("KSampler=12 a=1&b=2 %")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range DecodeSpents(text) {
			require.NotEmpty(t, s)
			again := DecodeSpents(s.Encode())
			require.Len(t, again, 1)
			require.Equal(t, s, again[0])
		}
	})
}
