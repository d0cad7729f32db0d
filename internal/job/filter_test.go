package job

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
