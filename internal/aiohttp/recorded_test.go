package aiohttp

import (
	"encoding/json"
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorded is what a real aiohttp made of a request. testdata/targets.json was
// made by a server with ComfyUI's own routes, in its order (those of the main
// table bare and under /api, a sub-application at /internal, a static folder
// with an index.html at /), whose handlers answered with their route, the
// values of match_info and the query; a middleware added rel_url.path_safe.
// Requests were written to a bare socket, so that no client cleaned a target:
// each route plain, escaped in one place and altogether, below /api, with more
// slashes, suffixes and dots, odd bytes in a parameter, odd queries, random
// mixtures, and last what Escaped makes of each of them.
type recorded struct {
	Method string      `json:"method"`
	Target string      `json:"target"`
	Status int         `json:"status"`
	Path   string      `json:"path"`
	Allow  string      `json:"allow"`
	Body   string      `json:"body"`
	Route  string      `json:"route"`
	Values []string    `json:"values"`
	Query  [][2]string `json:"query"`
}

func recording(t testing.TB) []recorded {
	t.Helper()
	data, err := os.ReadFile("testdata/targets.json")
	require.NoError(t, err)
	var table struct {
		Rows []recorded `json:"rows"`
	}
	require.NoError(t, json.Unmarshal(data, &table))
	require.Greater(t, len(table.Rows), 1500)
	return table.Rows
}

// url is the URL as net/http's server would hand it over, nil where it would
// answer 400 itself.
func (r recorded) url() *url.URL {
	u, err := url.ParseRequestURI(r.Target)
	if err != nil {
		return nil
	}
	return u
}

func TestReadPathAsAiohttpDoes(t *testing.T) {
	t.Parallel()
	rows := recording(t)
	read := map[string]string{} // by what was sent
	for _, row := range rows {
		read[row.Target] = row.Path
	}
	accepted := 0
	for _, row := range rows {
		u := row.url()
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
	for _, row := range recording(t) {
		u := row.url()
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
