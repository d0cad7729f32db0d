package ops

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/view"
)

func TestJobsPage(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]struct {
		page  view.JobsPage
		whole bool
	}{
		"":                                 {view.JobsPage{Limit: 100}, true},
		"client_id=x":                      {view.JobsPage{Limit: 100}, true},
		"limit=5":                          {view.JobsPage{Limit: 5}, false},
		"offset=10":                        {view.JobsPage{Offset: 10, Limit: 100}, false},
		"status=ended":                     {view.JobsPage{Which: view.PageEnded, Limit: 100}, false},
		"status=queued&limit=1000&offset=": {},
		"status=waiting":                   {},
		"limit=0":                          {},
		"limit=1001":                       {},
		"limit=x":                          {},
		"offset=-1":                        {},
		"offset=99999999999":               {},
	} {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		page, whole, err := jobsPage(values)
		if want.page.Limit == 0 {
			require.ErrorIs(t, err, ErrPage, query)
			continue
		}
		require.NoError(t, err, query)
		require.Equal(t, want.page, page, query)
		require.Equal(t, want.whole, whole, query)
	}
}

func FuzzJobsPage(f *testing.F) {
	for _, seed := range []string{"limit=5", "offset=10&status=queued", "limit=-1", "status=%00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		page, _, err := jobsPage(values)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, page.Offset, 0)
		require.Positive(t, page.Limit)
		require.LessOrEqual(t, page.Limit, view.MaxJobsPage)
	})
}
