// Package aiohttptest has what a real aiohttp made of odd requests.
package aiohttptest

import (
	_ "embed"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed targets.json
var targets []byte

// Row is what a real aiohttp made of a request. targets.json was made by a server
// with ComfyUI's own routes, in its order (those of the main table bare and under
// /api, a sub-application at /internal, a static folder with an index.html at /), whose
// handlers answered with their route, the values of match_info, and the query; a
// middleware added rel_url.path_safe. Requests were written to a bare socket, so that
// no client cleaned a target: each route plain, escaped in one place and altogether,
// below /api, with more slashes, suffixes and dots, odd bytes in a parameter, odd
// queries, random mixtures, and last what aiohttp.Escaped makes of each of them.
type Row struct {
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

// Rows returns the recording.
func Rows(t testing.TB) []Row {
	t.Helper()
	var table struct {
		Rows []Row `json:"rows"`
	}
	require.NoError(t, json.Unmarshal(targets, &table))
	require.Greater(t, len(table.Rows), 1500)
	return table.Rows
}
