package api

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
)

func TestRouter(t *testing.T) {
	t.Parallel()
	var hit string
	mark := func(name string) Handler {
		return func(http.ResponseWriter, *http.Request, Requester, []string) { hit = name }
	}
	var table Router
	table.Handle("GET /prompt", mark("get"))
	table.Handle("POST /prompt", mark("post"))
	table.Handle("GET /history/*", mark("one"))
	table.Handle("POST /jobs/cancel", mark("cancel"))
	table.Handle("GET /jobs/*", mark("job"))
	table.Handle("GET /preview/*/**", mark("preview"))
	table.Both("GET /ws", mark("ws"))
	table.Handle("POST /interrupt", mark("interrupt"))

	cases := []struct {
		method, path string
		want         string
		values       []string
		allow        []string
	}{
		{method: "GET", path: "/prompt", want: "get"},
		{method: "HEAD", path: "/prompt", want: "get"},
		{method: "POST", path: "/prompt", want: "post"},
		{method: "PUT", path: "/prompt", allow: []string{"GET", "POST"}},
		{method: "GET", path: "/interrupt", allow: []string{"POST"}},
		{method: "GET", path: "/history/a%2Fb", want: "one", values: []string{"a/b"}},
		{method: "GET", path: "/history/a/b"},
		{method: "POST", path: "/jobs/cancel", want: "cancel"},
		{method: "GET", path: "/jobs/cancel", want: "job", values: []string{"cancel"}},
		{method: "DELETE", path: "/jobs/cancel", allow: []string{"GET", "POST"}},
		{method: "GET", path: "/preview/a%2Fb/c/d%20e", want: "preview", values: []string{"a/b", "c/d e"}},
		{method: "GET", path: "/preview/a"},
		{method: "GET", path: "/preview/a/", want: "preview", values: []string{"a", ""}},
		{method: "GET", path: "/%70rompt", want: "get"},
		{method: "POST", path: "/%70rompt", want: "post"},
		{method: "GET", path: "/%61pi/%77s", want: "ws"},
		{method: "GET", path: "/ws", want: "ws"},
		{method: "GET", path: "/api/ws", want: "ws"},
		{method: "GET", path: "/api/api/ws"},
		{method: "GET", path: "/history/"},
		{method: "GET", path: "/prompt/"},
		{method: "GET", path: "//prompt"},
	}
	for _, c := range cases {
		hit = ""
		u, err := url.ParseRequestURI(c.path)
		require.NoError(t, err)
		p, err := aiohttp.ReadPath(u)
		require.NoError(t, err)
		h, values, allow := table.Find(c.method, p)
		if h != nil {
			h(nil, nil, Requester{}, values)
		}
		require.Equal(t, c.want, hit, "%s %s", c.method, c.path)
		require.Equal(t, c.values, values, "%s %s", c.method, c.path)
		require.ElementsMatch(t, c.allow, allow, "%s %s", c.method, c.path)
	}
	require.Equal(t, "DELETE,GET,HEAD", allowHeader([]string{"GET", "DELETE"}))
}
