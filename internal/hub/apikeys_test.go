package hub_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// key makes an API key.
func (b *bench) key(w apikeys.Wanted) string {
	b.t.Helper()
	_, secret, err := b.hub.Keys.Add(b.t.Context(), w)
	require.NoError(b.t, err)
	return secret
}

// ask sends a request with headers, and returns the answer's status, header and text.
func (b *bench) ask(method, path, body string, header http.Header) (int, http.Header, string) {
	b.t.Helper()
	r := must(http.NewRequestWithContext(b.t.Context(), method, b.web.URL+path, strings.NewReader(body)))(b.t)
	maps.Copy(r.Header, header)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(b.t, err)
	status, text := read(b.t, resp)
	return status, resp.Header, string(text)
}

func bearer(secret string) http.Header { return http.Header{"Authorization": {"Bearer " + secret}} }

func basic(user, password string) http.Header {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, password)
	return r.Header
}

// kindOfError is the type of an error in ComfyUI's shape, whose message the web UI shows.
func kindOfError(t *testing.T, text string) string {
	t.Helper()
	answer := decoded[struct {
		Error struct {
			Type, Message, Details string
			ExtraInfo              map[string]any `json:"extra_info"`
		}
		NodeErrors map[string]any `json:"node_errors"`
	}](t, text)
	require.NotEmpty(t, answer.Error.Message, text)
	require.NotNil(t, answer.Error.ExtraInfo, text)
	require.NotNil(t, answer.NodeErrors, text)
	return answer.Error.Type
}

func withKeys(policy api.KeyPolicy) func(*bench) { return func(b *bench) { b.keys = policy } }

func TestWaysToShowAKey(t *testing.T) {
	inBench(t, benchOf(1, withKeys(api.KeysRequired)), func(t *testing.T, b *bench) {
		secret := b.key(apikeys.Wanted{Name: "ada"})
		gone := b.key(apikeys.Wanted{Name: "gone"})
		must(b.hub.Keys.Revoke(t.Context(), "gone"))(t)
		for name, tc := range map[string]struct {
			method, path string
			header       http.Header
			status       int
			kind         string
		}{
			"bearer":            {"GET", "/queue", bearer(secret), 200, ""},
			"bearer, any case":  {"GET", "/queue", http.Header{"Authorization": {"bEARER  " + secret}}, 200, ""},
			"basic":             {"GET", "/queue", basic("anybody", secret), 200, ""},
			"basic, nobody":     {"POST", "/interrupt", basic("", secret), 200, ""},
			"token":             {"GET", "/queue?x=1&token=" + secret, nil, 200, ""},
			"token of a POST":   {"POST", "/interrupt?token=" + secret, nil, 401, "no_api_key"},
			"nothing":           {"GET", "/queue", nil, 401, "no_api_key"},
			"nothing, the page": {"GET", "/", nil, 401, "no_api_key"},
			"nothing, a POST":   {"POST", "/prompt", nil, 401, "no_api_key"},
			"somebody's token":  {"GET", "/queue?token=abc", nil, 401, "no_api_key"},
			"somebody's bearer": {"GET", "/queue", bearer("abc"), 401, "no_api_key"},
			"user and password": {"GET", "/queue", basic("ada", "abc"), 401, "no_api_key"},
			"key as the user":   {"GET", "/queue", basic(secret, "abc"), 401, "no_api_key"},
			"revoked":           {"GET", "/queue", bearer(gone), 401, "invalid_api_key"},
			"mistyped":          {"GET", "/queue", bearer(secret[:30]), 401, "invalid_api_key"},
			"mistyped token":    {"GET", "/queue?token=" + secret + "x", nil, 401, "invalid_api_key"},
			"header":            {"GET", "/queue", keyHeader(secret), 200, ""},
			"header, a POST":    {"POST", "/interrupt", keyHeader(secret), 200, ""},
			"header, revoked":   {"GET", "/queue", keyHeader(gone), 401, "invalid_api_key"},
			"header, mistyped":  {"GET", "/queue", keyHeader(secret[:30]), 401, "invalid_api_key"},
			"somebody's header": {"GET", "/queue", keyHeader("abc"), 401, "no_api_key"},
			"the same twice":    {"GET", "/queue", http.Header{"X-Api-Key": {secret, secret}, "Authorization": {"Bearer " + secret}}, 200, ""},
			"beside a login":    {"GET", "/queue", http.Header{"X-Api-Key": {secret}, "Authorization": {"Bearer abc"}}, 200, ""},
			"beside a header":   {"GET", "/queue", http.Header{"X-Api-Key": {"abc"}, "Authorization": {"Bearer " + secret}}, 200, ""},
			"header of no hub":  {"GET", "/queue", http.Header{"X-Api-Token": {secret}}, 401, "no_api_key"},
		} {
			status, header, text := b.ask(tc.method, tc.path, "", tc.header)
			require.Equal(t, tc.status, status, "%s: %s", name, text)
			require.NotContains(t, text, secret[9:30], name)
			if tc.kind != "" {
				require.Equal(t, tc.kind, kindOfError(t, text), name)
				challenges := strings.Join(header.Values("WWW-Authenticate"), ", ")
				require.Contains(t, challenges, "Bearer realm=", name)
				require.Contains(t, challenges, "Basic realm=", name)
			}
		}
	})
}

// With "optional", a caller without a key is who they would be without keys; a wrong key is refused
// all the same. Without the word, keys mean nothing.
func TestKeyPolicies(t *testing.T) {
	inBench(t, benchOf(1, withKeys(api.KeysOptional)), func(t *testing.T, b *bench) {
		secret := b.key(apikeys.Wanted{Name: "ada"})
		_, _, text := b.ask("GET", "/hub/jobs", "", nil)
		require.Equal(t, "[]", text)
		b.submit(picture(1), "ann")
		_, _, text = b.ask("GET", "/hub/jobs", "", bearer(secret))
		require.Equal(t, "[]", text, "the key's tenant has none")
		status, _, _ := b.ask("GET", "/queue", "", bearer(secret+"x"))
		require.Equal(t, http.StatusUnauthorized, status)

		b.keys = api.KeysRequired
		b.tenant = "ada" // a login of Caddy's
		status, _, _ = b.ask("GET", "/queue", "", nil)
		require.Equal(t, http.StatusOK, status)
		b.tenant = ""
		b.keys = api.KeysOff
		status, _, _ = b.ask("GET", "/queue", "", bearer(secret+"x"))
		require.Equal(t, http.StatusOK, status)
	})
}

// Whatever the path and its spelling, nobody without a key gets an answer, except on routes that
// check a token or a signature themselves, and those refuse invalid ones.
func TestNoDoorBesideKeys(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("much computing, one thing after the other: nothing for the race detector")
	}
	b := newBench(t, 1, withKeys(api.KeysRequired))
	for _, table := range b.rooms.Routers() {
		for pattern := range table.All() {
			path := strings.ReplaceAll(strings.ReplaceAll(pattern.String(), "**", "a"), "*", "a")
			for as, spell := range spellings() {
				for _, method := range []string{"GET", "HEAD", "POST", "DELETE", "PROPFIND"} {
					r := must(http.NewRequest(method, "http://hub.test/", http.NoBody))(t)
					at, err := r.URL.Parse("http://hub.test" + spell(path) + "?token=abc")
					if err != nil {
						continue
					}
					r.URL = at
					r.Header = bearer("attic:abc")
					w := httptest.NewRecorder()
					b.rooms.Serve(w, r, api.Visitor{IP: "10.0.0.1", Keys: api.KeysRequired})
					require.GreaterOrEqual(t, w.Code, 400, "%s %s (%s)", method, at, as)
				}
			}
		}
	}
	require.Zero(t, started(b))
	// The routes of machines answer for themselves.
	for _, path := range []string{"/hub/tunnel", "/hub/v1/next-job", "/next-job"} {
		status, _, text := b.ask("GET", path, "", bearer("attic:abc"))
		require.Equal(t, http.StatusUnauthorized, status)
		require.Contains(t, text, "comfyhub token", path)
	}
}

func TestScopes(t *testing.T) {
	inBench(t, benchOf(1, withKeys(api.KeysRequired), func(b *bench) { b.settings.Operators = []string{"ada"} }), func(t *testing.T, b *bench) {
		headers := map[string]http.Header{}
		for name, scopes := range map[string][]apikeys.Scope{
			"both": nil, "read": {apikeys.Read}, "submit": {apikeys.Submit}, "admin": {apikeys.Admin},
		} {
			headers[name] = bearer(b.key(apikeys.Wanted{Name: name, Tenant: "ada", Scopes: scopes}))
		}
		prompt := `{"prompt": ` + picture(1) + `}`
		for _, tc := range []struct {
			method, path, body string
			may                []string
		}{
			{"GET", "/queue", "", []string{"both", "read", "admin"}},
			{"HEAD", "/history", "", []string{"both", "read", "admin"}},
			{"POST", "/prompt", prompt, []string{"both", "submit", "admin"}},
			{"POST", "/interrupt", "", []string{"both", "submit", "admin"}},
			{"POST", "/hub/pause?tenant=nobody", "", []string{"admin"}},
		} {
			for name, header := range headers {
				status, _, text := b.ask(tc.method, tc.path, tc.body, header)
				if slices.Contains(tc.may, name) {
					require.Equal(t, http.StatusOK, status, "%s %s: %s", name, tc.path, text)
					continue
				}
				require.Equal(t, http.StatusForbidden, status, "%s %s", name, tc.path)
				if text != "" && !strings.HasPrefix(tc.path, "/hub/pause") {
					require.Equal(t, "missing_scope", kindOfError(t, text))
				}
			}
		}
	})
}

// A key is worth what its tenant is: two tenants see nothing of each other.
func TestKeyIsItsTenant(t *testing.T) {
	inBench(t, benchOf(1, withKeys(api.KeysRequired), func(b *bench) { b.trusted = true }), func(t *testing.T, b *bench) {
		ada, bob := bearer(b.key(apikeys.Wanted{Name: "ada"})), bearer(b.key(apikeys.Wanted{Name: "bob"}))
		second := bearer(b.key(apikeys.Wanted{Name: "ada-phone", Tenant: "ada"}))
		status, _, text := b.ask("POST", "/prompt", `{"prompt": `+picture(1)+`, "prompt_id": "of-ada"}`, ada)
		require.Equal(t, http.StatusOK, status, text)
		for _, who := range []http.Header{ada, second} {
			_, _, text = b.ask("GET", "/hub/jobs/of-ada", "", who)
			require.Contains(t, text, `"of-ada"`)
		}
		status, _, _ = b.ask("GET", "/hub/jobs/of-ada", "", bob)
		require.Equal(t, http.StatusNotFound, status)
		status, _, _ = b.ask("GET", "/hub/jobs/of-ada?tenant=ada", "", bob)
		require.Equal(t, http.StatusNotFound, status, "a key comes before what the web server trusts")
	})
}

// dialWith opens a socket with a key.
func (b *bench) dialWith(path string, header http.Header) *websocket.Conn {
	b.t.Helper()
	conn, _, err := websocket.Dial(b.t.Context(), b.web.URL+path, &websocket.DialOptions{HTTPHeader: header})
	require.NoError(b.t, err)
	conn.SetReadLimit(-1)
	b.t.Cleanup(func() { conn.CloseNow() })
	return conn
}

// closed reads from a socket until it ends, and returns how.
func closed(t *testing.T, conn *websocket.Conn) websocket.StatusCode {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if _, _, err := conn.Read(ctx); err != nil {
			require.NoError(t, ctx.Err(), "the socket stays open")
			return websocket.CloseStatus(err)
		}
	}
}

// A key that is revoked at one hub ends the sockets and streams it has opened at all hubs.
func TestRevokedKeyEndsSockets(t *testing.T) {
	inPair(t, 1, 0, func(t *testing.T, one, two *bench) {
		one.keys, two.keys = api.KeysRequired, api.KeysRequired
		secret := one.key(apikeys.Wanted{Name: "ada"})
		kept := one.key(apikeys.Wanted{Name: "ada-2", Tenant: "ada"})
		eventually(t, func() bool {
			status, _, _ := two.ask("GET", "/queue", "", bearer(secret))
			return status == http.StatusOK
		}, time.Minute, 200*time.Millisecond, "a few attempts must be left")
		sockets := []*websocket.Conn{
			one.dialWith("/ws?clientId=a", bearer(secret)), one.dialWith("/ws?clientId=b&token="+secret, nil),
			two.dialWith("/ws?clientId=c", basic("ada", secret)),
		}
		other := one.dialWith("/ws?clientId=d", bearer(kept))
		r := must(http.NewRequestWithContext(t.Context(), http.MethodGet, two.web.URL+"/hub/events", nil))(t)
		r.Header = bearer(secret)
		events, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, events.StatusCode)

		must(one.hub.Keys.Revoke(t.Context(), "ada"))(t)
		status, _, _ := one.ask("GET", "/queue", "", bearer(secret))
		require.Equal(t, http.StatusUnauthorized, status, "at once")
		for _, conn := range sockets {
			require.Equal(t, websocket.StatusPolicyViolation, closed(t, conn))
		}
		read(t, events)
		status, _, _ = two.ask("GET", "/queue", "", bearer(secret))
		require.Equal(t, http.StatusUnauthorized, status)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, other.Write(ctx, websocket.MessageText, []byte(`{"type": "feature_flags", "data": {}}`)))
		_, _, err = other.Read(ctx)
		require.NoError(t, err, "a key of the same tenant goes on")
	})
}

// Neither an instance nor the log sees a key, wherever it was shown.
func TestKeysGoNoFurther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log := &logtest.Log{}
		seen := &logtest.Log{}
		b := newBench(t, 0, withKeys(api.KeysRequired), func(b *bench) {
			b.log = log
			b.settings.Passthrough = config.PassthroughOn
			i := newInstance(t, sim.Config{})
			b.settings.Instances = []string{simtest.Front(t, i.url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
				_ = r.Header.Write(seen)
				_, _ = seen.Write([]byte(r.RequestURI + "\n"))
				rest.ServeHTTP(w, r)
			}).URL}
		})
		secret := b.key(apikeys.Wanted{Name: "ada"})
		for path, header := range map[string]http.Header{
			"/pack/a": bearer(secret), "/pack/b": basic("ada", secret), "/pack/c?token=" + secret + "&keep=1": nil,
			"/pack/f": keyHeader(secret), "/pack/g": {"X-Api-Key": {secret}, "Authorization": {"Bearer " + secret}},
			"/pack/d?Token=" + secret: bearer(secret), "/pack/e?%74oken=" + secret: bearer(secret),
		} {
			b.ask("GET", path, "", header)
			b.ask("POST", path, "", header)
		}
		conn := b.dialWith("/ws?clientId=a&token="+secret, nil)
		require.NoError(t, conn.CloseNow())
		require.Contains(t, seen.String(), "/pack/c?keep=1")
		require.NotContains(t, seen.String(), secret[9:40])
		require.NotContains(t, log.String(), secret[9:40])
	})
}

// Many wrong keys from one address are answered with 429, and cost neither its neighbours
// nor valid keys anything.
func TestWrongKeysAreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, withKeys(api.KeysRequired))
	secret := b.key(apikeys.Wanted{Name: "ada"})
	ask := func(ip, secret string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "http://hub.test/queue", http.NoBody)
		r.Header = bearer(secret)
		w := httptest.NewRecorder()
		b.rooms.Serve(w, r, api.Visitor{IP: ip, Keys: api.KeysRequired})
		return w
	}
	eventually(t, func() bool {
		w := ask("10.0.0.1", secret+"x")
		if w.Code != http.StatusTooManyRequests {
			require.Equal(t, http.StatusUnauthorized, w.Code)
			return false
		}
		require.NotEmpty(t, w.Header().Get("Retry-After"))
		return kindOfError(t, w.Body.String()) == "too_many_attempts"
	}, time.Minute, time.Microsecond)
	require.Equal(t, http.StatusUnauthorized, ask("10.0.0.2", secret+"x").Code)
	require.Equal(t, http.StatusOK, ask("10.0.0.1", secret).Code)
	began, refused := time.Now(), 0
	for n := range 100 { // the addresses of one customer are one
		if ask("2001:db8::"+string("123456789abcdef"[n%15]), secret+"x").Code == http.StatusTooManyRequests {
			refused++
		}
	}
	require.GreaterOrEqual(t, refused, 80-int(time.Since(began)/(6*time.Second)), "an attempt is forgiven every six seconds")
}

// Limits that come with a key bind its tenant, before those of the configuration.
func TestLimitsOfAKey(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, withKeys(api.KeysRequired), func(b *bench) {
			b.settings.TenantLimits.Waiting = 100
			b.settings.TenantWeights = map[string]float64{"ada": 7, "bob": 5}
		})
		ada := bearer(b.key(apikeys.Wanted{Name: "ada", Limits: apikeys.Limits{Weight: 2, Running: 1, Waiting: 1, GPUSeconds: 3600}}))
		require.InDelta(t, 2, b.hub.Tenants.Weight("ada"), 0)
		require.InDelta(t, 5, b.hub.Tenants.Weight("bob"), 0)
		limits := b.hub.Tenants.Limits("ada")
		require.Equal(t, 1, limits.Running)
		require.Equal(t, time.Hour, limits.GPUTime)
		require.Equal(t, 100, b.hub.Tenants.Limits("bob").Waiting)
		post := func(n int) (int, string) {
			status, _, text := b.ask("POST", "/prompt", `{"prompt": `+endless(n)+`}`, ada)
			return status, text
		}
		status, text := post(1)
		require.Equal(t, http.StatusOK, status, text)
		eventually(t, func() bool { return started(b) == 1 }, time.Minute, 5*time.Millisecond)
		answered(post(2))(t, http.StatusOK)
		text = answered(post(3))(t, http.StatusTooManyRequests)
		require.Equal(t, "tenant_queue_full", kindOfError(t, text))
	})
}
