package sim

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp/aiohttptest"
)

// The simulator reads paths and queries like a real aiohttp, finds the same routes
// with the same parameters, and refuses the others in the same words.
func TestTargetsAsAiohttpReadsThem(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Version: "0.33.0", Dir: t.TempDir(), IndexPage: "x"})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	routed, refused := 0, 0
	for _, row := range aiohttptest.Rows(t) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(row.Method + " " + row.Target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
		if err != nil || row.Status == http.StatusBadRequest || row.Path == "" {
			continue // Go answers 400 where aiohttp reads on, or both do
		}
		what := row.Method + " " + row.Target
		require.Equal(t, row.Path, pathSafe(r), what)
		handle, _ := match(s.routes, r, strings.Split(pathSafe(r), "/")[1:])
		require.Equal(t, row.Route != "", handle != nil, what)
		if handle != nil {
			routed++
			require.Equal(t, row.Values, values(s, r), what)
			want := url.Values{}
			for _, pair := range row.Query {
				want.Add(pair[0], pair[1])
			}
			require.Equal(t, want, query(r), what)
			continue
		}
		if row.Status == http.StatusForbidden {
			continue // a folder, which the simulator does not have
		}
		refused++
		w := httptest.NewRecorder()
		s.serve(w, r)
		require.Equal(t, row.Status, w.Code, what)
		require.Equal(t, row.Allow, w.Header().Get("Allow"), what)
		require.Equal(t, row.Body, w.Body.String(), what)
	}
	require.Greater(t, routed, 300)
	require.Greater(t, refused, 1000)
}

// values are the parameters of a matched request in the order of the route.
func values(s *Server, r *http.Request) (list []string) {
	for _, rt := range s.routes {
		params, ok := rt.params(strings.Split(pathSafe(r), "/")[1:])
		if !ok || rt.method != r.Method {
			continue
		}
		for _, segment := range rt.segments {
			if name, isParam := strings.CutPrefix(segment, "{"); isParam {
				list = append(list, params[strings.TrimRight(name, ".}")])
			}
		}
		return slices.Clip(list)
	}
	return nil
}
