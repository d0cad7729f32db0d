package caddymodule

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
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
	t.Parallel()
	trusted, err := parseRanges([]string{"10.0.0.9", "192.168.0.0/16", "fe80::/10"})
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		handler Handler
		from    string // address of the peer
		named   string // X-ComfyHub-Tenant
		user    string // the authenticated user
		want    api.Visitor
	}{
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
	trusted, err := parseRanges([]string{"private_ranges"})
	require.NoError(t, err)
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
