package caddymodule

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"
	"github.com/stretchr/testify/require"
)

// The path below which a site is seen is none that a stranger can choose, and a clean one.
func TestPrefix(t *testing.T) {
	t.Parallel()
	strict := serverBehind(t, 1)
	const proxy, stranger = "10.0.0.1:1", "192.0.2.1:1"
	for name, tc := range map[string]struct {
		from   string
		header []string
		path   string // "/queue" if empty
		strip  string // what Caddy takes off
		want   string
	}{
		"the root":                 {from: proxy},
		"a proxy":                  {from: proxy, header: []string{"/comfyui"}, want: "/comfyui"},
		"a stranger":               {from: stranger, header: []string{"/comfyui"}},
		"a slash at its end":       {from: proxy, header: []string{"/comfyui/"}, want: "/comfyui"},
		"only a slash":             {from: proxy, header: []string{"/"}},
		"empty":                    {from: proxy, header: []string{""}},
		"two segments":             {from: proxy, header: []string{"/tools/comfyui"}, want: "/tools/comfyui"},
		"two proxies":              {from: proxy, header: []string{"/tools, /comfyui"}, want: "/tools/comfyui"},
		"two lines":                {from: proxy, header: []string{"/tools", "/comfyui/"}, want: "/tools/comfyui"},
		"escaped":                  {from: proxy, header: []string{"/a%20b"}, want: "/a%20b"},
		"to escape":                {from: proxy, header: []string{`/a"b<`}, want: "/a%22b%3C"},
		"the longest":              {from: proxy, header: []string{"/" + strings.Repeat("a", maxPrefix-1)}, want: "/" + strings.Repeat("a", maxPrefix-1)},
		"too long":                 {from: proxy, header: []string{"/" + strings.Repeat("a", maxPrefix)}},
		"relative":                 {from: proxy, header: []string{"comfyui"}},
		"one of two relative":      {from: proxy, header: []string{"/tools, comfyui"}},
		"another host":             {from: proxy, header: []string{"//evil.example"}},
		"another host, spelled":    {from: proxy, header: []string{`/\evil.example`}},
		"another host, escaped":    {from: proxy, header: []string{"/%2Fevil.example"}},
		"another host, in two":     {from: proxy, header: []string{"/,/evil.example"}, want: "/evil.example"},
		"a URL":                    {from: proxy, header: []string{"https://evil.example"}},
		"an empty segment":         {from: proxy, header: []string{"/a//b"}},
		"upwards":                  {from: proxy, header: []string{"/a/../b"}},
		"upwards, escaped":         {from: proxy, header: []string{"/a/%2e%2E"}},
		"here":                     {from: proxy, header: []string{"/./a"}},
		"a query":                  {from: proxy, header: []string{"/a?b"}},
		"a fragment":               {from: proxy, header: []string{"/a#b"}},
		"a line":                   {from: proxy, header: []string{"/a%0Ab"}},
		"no escape":                {from: proxy, header: []string{"/a%zz"}},
		"no UTF-8":                 {from: proxy, header: []string{"/a%ff"}},
		"stripped":                 {from: stranger, path: "/comfyui/queue", strip: "/comfyui", want: "/comfyui"},
		"stripped, the page":       {from: stranger, path: "/comfyui/", strip: "/comfyui", want: "/comfyui"},
		"stripped, as written":     {from: stranger, path: "/ComfyUI/queue", strip: "/comfyui", want: "/ComfyUI"},
		"stripped, two segments":   {from: stranger, path: "/tools/comfyui/queue", strip: "/tools/comfyui", want: "/tools/comfyui"},
		"stripped, an escaped one": {from: stranger, path: "/a%20b/view%2Fx", strip: "/a b", want: "/a%20b"},
		"stripped, slashes":        {from: stranger, path: "//comfyui//queue", strip: "/comfyui", want: "/comfyui"},
		"stripped, dots":           {from: stranger, path: "/x/../comfyui/queue", strip: "/comfyui", want: "/comfyui"},
		"stripped, a stranger":     {from: stranger, path: "/comfyui/queue", strip: "/comfyui", header: []string{"/evil"}, want: "/comfyui"},
		"stripped twice":           {from: proxy, path: "/comfyui/queue", strip: "/comfyui", header: []string{"/tools"}, want: "/tools/comfyui"},
		"stripped, a bad header":   {from: proxy, path: "/comfyui/queue", strip: "/comfyui", header: []string{"//evil.example"}, want: "/comfyui"},
		"nothing to strip":         {from: stranger, path: "/queue", strip: "/comfyui"},
		"slashes":                  {from: stranger, path: "//evil.example/queue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := tc.path
			if path == "" {
				path = "/queue"
			}
			r := httptest.NewRequest(http.MethodGet, "http://hub.example"+path, nil)
			r.RemoteAddr = tc.from
			for _, value := range tc.header {
				r.Header.Add(prefixHeader, value)
			}
			repl := caddy.NewReplacer()
			r = caddyhttp.PrepareRequest(r, repl, httptest.NewRecorder(), strict)
			if tc.strip != "" {
				rewrite.Rewrite{StripPathPrefix: tc.strip}.Rewrite(r, repl)
			}
			seen := new(recorder)
			h := Handler{Tenant: defaultTenant, hub: seen}
			require.NoError(t, h.ServeHTTP(httptest.NewRecorder(), r, refuseNext))
			require.Equal(t, tc.want, seen.visitor.Prefix)
		})
	}
}

// A path that was changed otherwise than by taking something off its start says nothing.
func TestNoPrefixOfAnotherPath(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"/other", "/x{path}", "*", "/queue/more"} {
		repl := caddy.NewReplacer()
		r := caddyhttp.PrepareRequest(httptest.NewRequest(http.MethodGet, "/comfyui/queue", nil), repl, httptest.NewRecorder(), nil)
		r.URL.Path = repl.ReplaceAll(strings.ReplaceAll(to, "{path}", "/comfyui/queue"), "")
		require.Empty(t, prefixOf(r, true), to)
	}
}
