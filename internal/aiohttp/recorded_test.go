package aiohttp

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp/aiohttptest"
)

// target is the URL of a request as net/http's server would hand it over, nil where it would
// answer 400 itself.
func target(r aiohttptest.Row) *url.URL {
	u, err := url.ParseRequestURI(r.Target)
	if err != nil {
		return nil
	}
	return u
}

func TestReadPathAsAiohttpDoes(t *testing.T) {
	t.Parallel()
	rows := aiohttptest.Rows(t)
	read := map[string]string{} // by what was sent
	for _, row := range rows {
		read[row.Target] = row.Path
	}
	accepted := 0
	for _, row := range rows {
		u := target(row)
		if u == nil {
			continue
		}
		p, err := ReadPath(u)
		if err != nil {
			require.ErrorIs(t, err, ErrRefused)
			continue
		}
		accepted++
		if row.Status != 400 { // raw bytes that its parser does not take
			require.Equal(t, row.Path, p.String(), row.Target)
		}
		again, known := read[p.Escaped()]
		require.True(t, known, "not recorded: %s", p.Escaped())
		require.Equal(t, p.String(), again, "what is sent for %s must be read as it was here", row.Target)
	}
	require.Greater(t, accepted, 1000)
}

func TestParseQueryAsAiohttpDoes(t *testing.T) {
	t.Parallel()
	met := 0
	for _, row := range aiohttptest.Rows(t) {
		u := target(row)
		if u == nil || row.Status != 200 || row.Route == "" {
			continue
		}
		want := url.Values{}
		for _, pair := range row.Query {
			want.Add(pair[0], pair[1])
			met++
		}
		require.Equal(t, want, ParseQuery(u.RawQuery), row.Target)
	}
	require.Greater(t, met, 50)
}
