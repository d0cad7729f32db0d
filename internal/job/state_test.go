package job

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNext(t *testing.T) {
	t.Parallel()
	want := map[State]map[Event]State{
		Queued:    {Claim: Leased, Fail: Failed, Cancel: Cancelled},
		Leased:    {Start: Running, Complete: Done, Fail: Failed, Requeue: Queued, Cancel: Cancelled},
		Running:   {Start: Running, Complete: Done, Fail: Failed, Requeue: Queued, Cancel: Cancelled},
		Done:      {},
		Failed:    {},
		Cancelled: {},
	}
	for state, events := range want {
		for _, event := range []Event{Claim, Start, Complete, Fail, Requeue, Cancel} {
			next, err := Next(state, event)
			if to, ok := events[event]; ok {
				require.NoError(t, err, "%s %s", state, event)
				require.Equal(t, to, next)
				continue
			}
			var refused *TransitionError
			require.ErrorAs(t, err, &refused, "%s %s", state, event)
			require.Equal(t, state, next, "a refused event changes nothing")
		}
		require.Equal(t, len(events) == 0, state.Ended(), "only ends have no way out: %s", state)
		require.NotEqual(t, state.Live(), state.Ended())
	}
}

func TestRankPrefixOrder(t *testing.T) {
	t.Parallel()
	// Each rank runs before the next one.
	ranks := []string{
		RankPrefix(100, 5),
		RankPrefix(1, math.Inf(1)),
		RankPrefix(0, math.Inf(-1)),
		RankPrefix(0, -3),
		RankPrefix(0, -2.5),
		RankPrefix(0, 0),
		RankPrefix(0, 1e-9),
		RankPrefix(0, 7),
		RankPrefix(0, 1e300),
		RankPrefix(0, math.Inf(1)),
		RankPrefix(0, math.NaN()),
		RankPrefix(-1, -100),
		RankPrefix(-100, 0),
	}
	for i := 1; i < len(ranks); i++ {
		require.Less(t, ranks[i-1], ranks[i], "%d", i)
	}
	require.Equal(t, RankPrefix(0, 0), RankPrefix(0, math.Copysign(0, -1)))
	require.Equal(t, RankPrefix(500, 0), RankPrefix(100, 0), "priority is bounded")
}

func TestParseFileRef(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]FileRef{
		"a.png":                   {TypeInput, "", "a.png"},
		"a.png [output]":          {TypeOutput, "", "a.png"},
		"clipspace/m.png [temp]":  {TypeTemp, "clipspace", "m.png"},
		"clipspace/m.png [input]": {TypeInput, "clipspace", "m.png"},
		"a/b/c.png [input]":       {TypeInput, "a/b", "c.png"},
		"s/t/a.png [output]":      {TypeOutput, "s/t", "a.png"},
		`a\b.png`:                 {TypeInput, "a", "b.png"},
		`s\a.png [temp]`:          {TypeTemp, "s", "a.png"},
		"a.png[output]":           {TypeOutput, "", "a.pn"}, // one character is cut, whatever it is
		"aü[temp]":                {TypeTemp, "", "a"},
		"[temp]":                  {TypeTemp, "", ""},
		"a.png [Output]":          {TypeInput, "", "a.png [Output]"},
		"/etc/hostname":           {TypeInput, "/etc", "hostname"},
		"/hostname":               {TypeInput, "/", "hostname"},
	} {
		require.Equal(t, want, ParseFileRef(value, TypeInput), value)
	}
	require.Equal(t, FileRef{TypeTemp, "", "a.png"}, ParseFileRef("a.png", TypeTemp))
	require.Equal(t, "s/a.png [output]", FileRef{TypeOutput, "s", "a.png"}.Value(true))
	require.Equal(t, "a.png", FileRef{TypeInput, "", "a.png"}.Value(false))
}

func FuzzParseFileRef(f *testing.F) {
	for _, s := range []string{"a.png", "sub/a.png [output]", "[temp]", "ü[input]", `a\b [temp]`, "a [output] [input]", "/0", "//0", "a//0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		ref := ParseFileRef(value, TypeInput)
		require.Contains(t, []string{TypeInput, TypeOutput, TypeTemp}, ref.Type)
		if ref.Filename == "" {
			return
		}
		require.Equal(t, ref, ParseFileRef(ref.Value(true), TypeTemp))
	})
}

func TestFilter(t *testing.T) {
	t.Parallel()
	failed := Job{
		Key: "00c0ffee-0000-4000-8000-000000000001", ID: "my picture", Requester: Requester{Tenant: "ann"}, Rank: "~1:00c0ffee-0000-4000-8000-000000000001",
		State: Failed, Reason: "KSampler: CUDA out of memory", Lost: []string{"studio-a died"}, Run: Run{Instance: "studio-b", Upstream: "beef"}, CreatedAt: 100, FinishedAt: 200,
	}
	leased := Job{ID: "next", State: Leased, CreatedAt: 150}
	ahead := Job{ID: "behind", State: Leased, Ahead: true, CreatedAt: 150}
	for name, c := range map[string]struct {
		f                     Filter
		failed, leased, ahead bool
	}{
		"all":                 {Filter{}, true, true, true},
		"tenant":              {Filter{Tenant: "ann"}, true, false, false},
		"a part of a tenant":  {Filter{Tenant: "an"}, false, false, false},
		"failed":              {Filter{States: []State{Failed, Cancelled}}, true, false, false},
		"running":             {Filter{States: []State{Running}}, false, true, false},
		"queued":              {Filter{States: []State{Queued}}, false, false, true},
		"band":                {Filter{Band: Bulk}, true, false, false},
		"normal":              {Filter{Band: Normal}, false, true, true},
		"instance":            {Filter{Instance: "Studio-B"}, true, false, false},
		"id":                  {Filter{Text: "PICTURE"}, true, false, false},
		"key":                 {Filter{Text: "00c0ffee"}, true, false, false},
		"upstream id":         {Filter{Text: "beef"}, true, false, false},
		"error":               {Filter{Error: "out of Memory"}, true, false, false},
		"an earlier error":    {Filter{Error: "died"}, true, false, false},
		"an id is no error":   {Filter{Error: "picture"}, false, false, false},
		"text and error":      {Filter{Text: "picture", Error: "nothing"}, false, false, false},
		"ended before":        {Filter{Since: 201}, false, true, true},
		"ended at the moment": {Filter{Since: 200}, true, true, true},
		"posted later":        {Filter{Until: 149}, true, false, false},
		"at that time":        {Filter{Since: 120, Until: 160}, true, true, true},
	} {
		require.Equal(t, []bool{c.failed, c.leased, c.ahead}, []bool{c.f.Has(failed), c.f.Has(leased), c.f.Has(ahead)}, name)
		require.Equal(t, name == "all", c.f.All(), name)
	}
	require.True(t, Filter{}.Wants(Done))
	require.False(t, Filter{States: []State{Failed}}.Wants(Queued, Running))
}
