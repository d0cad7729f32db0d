package ops

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

func TestLookupOf(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]lookup{
		"":                       {limit: 50},
		"text=a&error=b":         {Filter: job.Filter{Text: "a", Error: "b"}, limit: 50},
		"status=queued,failed":   {Filter: job.Filter{States: []job.State{job.Queued, job.Failed}}, limit: 50},
		"since=1.5&until=2":      {Filter: job.Filter{Since: 1500, Until: 2000}, limit: 50},
		"limit=0":                {count: true},
		"limit=200&cursor=e:7":   {limit: 200, cursor: "e:7"},
		"band=bulk&instance=gpu": {Filter: job.Filter{Band: job.Bulk, Instance: "gpu"}, limit: 50},
	} {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		got, err := lookupOf(values)
		require.NoError(t, err, query)
		require.Equal(t, want, got, query)
	}
	for _, query := range []string{
		"status=", "status=queued,", "status=leased", "since=NaN", "since=-1", "since=1e300", "until=Inf", "limit=-1", "limit=201", "limit=1.5",
		"stat=queued", "band=urgent", "text=a&text=b", "text=" + strings.Repeat("x", job.MaxFilterText+1),
	} {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		_, err = lookupOf(values)
		require.ErrorIs(t, err, errSearch, query)
	}
}

func FuzzLookupOf(f *testing.F) {
	for _, seed := range []string{"limit=5", "status=queued,failed&cursor=l:1", "since=1e9", "text=%00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		l, err := lookupOf(values)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, l.limit, 0)
		require.LessOrEqual(t, l.limit, maxShown)
		require.GreaterOrEqual(t, l.Since, int64(0))
		require.LessOrEqual(t, len(l.Text), job.MaxFilterText)
	})
}
