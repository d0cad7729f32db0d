package comfy

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzJobQuery(f *testing.F) {
	f.Add("status=pending,&limit=1&offset=-1")
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		q, fault := parseJobQuery(values)
		if fault == "" {
			require.GreaterOrEqual(t, q.offset, 0)
			require.GreaterOrEqual(t, q.limit, 0)
		}
	})
}
