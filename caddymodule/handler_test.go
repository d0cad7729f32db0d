package caddymodule

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// recorder remembers what the handler handed to the hub.
type recorder struct {
	visitor api.Visitor
	header  http.Header
	called  bool
}

func (s *recorder) Serve(_ http.ResponseWriter, r *http.Request, v api.Visitor) {
	s.visitor, s.header, s.called = v, r.Header, true
}

func TestVisitor(t *testing.T) {
	trusted := must.Get(parseRanges([]string{"10.0.0.9", "192.168.0.0/16", "fe80::/10"}))(t)
	type row struct {
		handler Handler
		from    string // address of the peer
		named   string // X-ComfyHub-Tenant
		user    string // the authenticated user
		want    api.Visitor
	}
	beside.Cases(t, map[string]row{
		"nobody logged in":           {from: "10.0.0.1:1", want: api.Visitor{IP: "10.0.0.1"}},
		"a user":                     {from: "10.0.0.1:1", user: "ada", want: api.Visitor{IP: "10.0.0.1", Tenant: "ada", Identified: true}},
		"a stranger names a tenant":  {from: "10.0.0.1:1", named: "eve", want: api.Visitor{IP: "10.0.0.1", Named: "eve"}},
		"a user names another":       {from: "10.0.0.1:1", named: "eve", user: "ada", want: api.Visitor{IP: "10.0.0.1", Named: "eve", Tenant: "ada", Identified: true}},
		"a trusted one names":        {from: "10.0.0.9:1", named: "bob", want: api.Visitor{Trusted: true, IP: "10.0.0.9", Named: "bob", Tenant: "bob", Identified: true}},
		"trusted, names before user": {from: "192.168.3.4:1", named: "bob", user: "bot", want: api.Visitor{Trusted: true, IP: "192.168.3.4", Named: "bob", Tenant: "bob", Identified: true}},
		"trusted, names nobody":      {from: "10.0.0.9:1", user: "bot", want: api.Visitor{Trusted: true, IP: "10.0.0.9", Tenant: "bot", Identified: true}},
		"IPv4 in IPv6":               {from: "[::ffff:10.0.0.9]:1", named: "bob", want: api.Visitor{Trusted: true, IP: "10.0.0.9", Named: "bob", Tenant: "bob", Identified: true}},
		"live":                       {handler: Handler{Events: eventsLive}, from: "10.0.0.1:1", want: api.Visitor{IP: "10.0.0.1", Live: true}},
		"cors":                       {handler: Handler{CORS: "*"}, from: "10.0.0.1:1", want: api.Visitor{IP: "10.0.0.1", CORS: "*"}},
		"one":                        {handler: Handler{Queue: queueOne}, from: "10.0.0.1:1", want: api.Visitor{IP: "10.0.0.1", QueueOne: true}},
		"all":                        {handler: Handler{Queue: queueAll}, from: "10.0.0.1:1", want: api.Visitor{IP: "10.0.0.1"}},
		"serial":                     {handler: Handler{Events: eventsSerial}, from: "10.0.0.1:1", want: api.Visitor{IP: "10.0.0.1"}},
	}, func(t *testing.T, tc row) {
		seen := new(recorder)
		h := tc.handler
		h.hub, h.trusted, h.Tenant = seen, trusted, defaultTenant
		require.NoError(t, h.Validate())

		w := httptest.NewRecorder()
		require.NoError(t, h.ServeHTTP(w, request(tc.from, tc.named, tc.user), refuseNext))
		require.Equal(t, tc.want, seen.visitor)
		require.NotContains(t, seen.header, tenantHeader)
	})
}

// A word of the configuration says nothing about who asks.
func TestIdentified(t *testing.T) {
	t.Parallel()
	for tenant, want := range map[string]struct {
		anonymous, user api.Visitor
	}{
		"{http.auth.user.id}":         {api.Visitor{}, api.Visitor{Tenant: "ada", Identified: true}},
		"studio":                      {api.Visitor{Tenant: "studio"}, api.Visitor{Tenant: "studio"}},
		"studio-{http.auth.user.id}":  {api.Visitor{Tenant: "studio-"}, api.Visitor{Tenant: "studio-ada", Identified: true}},
		"{http.request.header.Other}": {api.Visitor{}, api.Visitor{}},
	} {
		for user, v := range map[string]api.Visitor{"": want.anonymous, "ada": want.user} {
			seen := new(recorder)
			h := Handler{Tenant: tenant, Keys: "required", hub: seen}
			require.NoError(t, h.Validate())
			require.NoError(t, h.ServeHTTP(httptest.NewRecorder(), request("10.0.0.1:1", "", user), refuseNext))
			v.IP, v.Keys = "10.0.0.1", api.KeysRequired
			require.Equal(t, v, seen.visitor, "%s, %s", tenant, user)
		}
	}
	require.ErrorContains(t, (&Handler{Keys: "some"}).Validate(), "keys")
}

func TestTenantIsBounded(t *testing.T) {
	t.Parallel()
	trusted := must.Get(parseRanges([]string{"private_ranges"}))(t)
	for length, refused := range map[int]bool{maxTenant: false, maxTenant + 1: true} {
		seen := new(recorder)
		h := Handler{Tenant: defaultTenant, hub: seen, trusted: trusted}
		err := h.ServeHTTP(httptest.NewRecorder(), request("10.0.0.1:1", strings.Repeat("x", length), ""), refuseNext)
		require.Equal(t, !refused, seen.called)
		if refused {
			var coded caddyhttp.HandlerError
			require.ErrorAs(t, err, &coded)
			require.Equal(t, http.StatusBadRequest, coded.StatusCode)
		}
	}
}

func TestHandlerValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, (&Handler{}).Validate())
	require.ErrorContains(t, (&Handler{Events: "mixed"}).Validate(), "events")
	require.ErrorContains(t, (&Handler{Queue: "two"}).Validate(), "queue")
}

// refuseNext fails a request that the handler let through.
var refuseNext = caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
	return errors.New("the handler must end the chain")
})

// request is one as Caddy's server hands it to handlers.
func request(from, named, user string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/queue", nil)
	r.RemoteAddr = from
	if named != "" {
		r.Header.Set(tenantHeader, named)
	}
	repl := caddy.NewReplacer()
	if user != "" {
		repl.Set("http.auth.user.id", user)
	}
	return caddyhttp.PrepareRequest(r, repl, httptest.NewRecorder(), &caddyhttp.Server{})
}

// The hub knows where its operators' site is, and says so if there are operators and no site.
func TestOperatorsAt(t *testing.T) {
	t.Parallel()
	const comfy = "http://:8188 {\nbind 127.0.0.1\ncomfyhub\n}\n"
	for sites, want := range map[string]string{
		comfy: "",
		comfy + "http://:8187 {\nbind 127.0.0.1\ncomfyhub_operators\n}":                                              "http://127.0.0.1:8187",
		comfy + "http://:8187 {\nencode gzip\ncomfyhub_operators\n}":                                                 "http://:8187",
		comfy + "http://:8187 {\nbind 0.0.0.0\ncomfyhub_operators\n}":                                                "http://:8187",
		comfy + "http://ops.example.com {\ncomfyhub_operators\n}":                                                    "http://ops.example.com",
		comfy + "ops.example.com {\nencode gzip\ncomfyhub_operators\n}":                                              "https://ops.example.com",
		comfy + "https://ops.example.com:8443 {\ntls internal\ncomfyhub_operators\n}":                                "https://ops.example.com:8443",
		"http://hub.example.com {\ncomfyhub\n}\nhttp://ops.example.com {\ncomfyhub_operators {\nkeys required\n}\n}": "http://ops.example.com",
	} {
		hubs := provisioned(t, "{\ncomfyhub {\noperators root\n}\n}\n"+sites)
		require.Equal(t, want, operatorsAt(hubs.sites), sites)
		require.Equal(t, want == "", noSiteDoubt(hubs.Operators, hubs.sites) != nil, sites)
		require.Nil(t, noSiteDoubt(nil, hubs.sites))
	}
}

// The directive takes the words of comfyhub, and says of each request where it came in.
func TestOperatorsDirective(t *testing.T) {
	t.Parallel()
	must.Get(adapt(t, ":8187 {\ncomfyhub_operators {\nkeys required\nhosts a.example\n}\n}"))(t)
	_, err := adapt(t, ":8187 {\ncomfyhub_operators {\nno_such_word 1\n}\n}")
	require.ErrorContains(t, err, "no_such_word")

	for _, operators := range []bool{false, true} {
		seen := new(recorder)
		h := OperatorsHandler{Handler{Tenant: defaultTenant, hub: seen, operators: operators}}
		r := request("10.0.0.1:1", "", "root")
		r.Method = http.MethodPost
		require.NoError(t, h.ServeHTTP(httptest.NewRecorder(), r, refuseNext))
		require.Equal(t, operators, seen.visitor.OperatorsSite)
	}
}

// The path below which a site is seen is none that a stranger can choose, and a clean one.
func TestPrefix(t *testing.T) {
	strict := serverBehind(t, 1)
	const proxy, stranger = "10.0.0.1:1", "192.0.2.1:1"
	type row struct {
		from   string
		header []string
		path   string // "/queue" if empty
		strip  string // what Caddy takes off
		want   string
	}
	beside.Cases(t, map[string]row{
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
	}, func(t *testing.T, tc row) {
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
