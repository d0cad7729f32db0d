package hub_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/logs/logtest"
)

// call is a request with what the web server says of its sender.
func (b *bench) call(method, path, body string, header http.Header, v api.Visitor) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(b.t.Context(), method, "http://hub.test"+path, strings.NewReader(body))
	if header != nil {
		r.Header = header
	}
	w := httptest.NewRecorder()
	if v.IP == "" {
		v.IP = "10.0.0.1"
	}
	b.rooms.Serve(w, r, v)
	return w
}

// Only a caller that shows a key with the scope, or the site's secret, may name a tenant, and
// naming one gives it no operator's power.
func TestActForTenants(t *testing.T) {
	t.Parallel()
	for _, policy := range []api.KeyPolicy{api.KeysOff, api.KeysOptional, api.KeysRequired} {
		runInBubble(t, "keys "+string(policy), func(t *testing.T) {
			b := newBench(t, 1, func(b *bench) { b.settings.Operators = []string{"root"} })
			key := func(name string, scopes ...apikeys.Scope) http.Header {
				return bearer(b.key(apikeys.Wanted{Name: name, Scopes: scopes}))
			}
			acting := key("bot", apikeys.ActForTenants)
			plain, admin, both := key("plain"), key("boss", apikeys.Admin), key("both", apikeys.Admin, apikeys.ActForTenants)
			secret := api.NewTenantSecret("a secret of some length")
			shown := bearer("a secret of some length")

			// What a request sees and may do tells whose it is.
			pauses := func(header http.Header, named string) int {
				return b.call("POST", "/hub/pause", "", header.Clone(), api.Visitor{Keys: policy, Named: named, TenantSecret: secret}).Code
			}
			stored := func(header http.Header, named, as string) bool {
				v := api.Visitor{Keys: policy, Named: named, TenantSecret: secret}
				if w := b.call("POST", "/userdata/mark.json?overwrite=true", `{}`, header.Clone(), v); w.Code != http.StatusOK {
					return false
				}
				found := b.call("GET", "/userdata/mark.json", "", nil, api.Visitor{Tenant: as}).Code == http.StatusOK
				b.call("DELETE", "/userdata/mark.json", "", nil, api.Visitor{Tenant: as})
				return found
			}
			require.True(t, stored(shown, "ada", "ada"))
			require.Equal(t, policy != api.KeysOff, stored(acting, "ada", "ada"))
			require.Equal(t, policy != api.KeysOff, stored(both, "ada", "ada"))
			require.False(t, stored(plain, "ada", "ada"))
			require.False(t, stored(admin, "ada", "ada"))
			require.False(t, stored(http.Header{}, "ada", "ada"))
			require.False(t, stored(keyHeader("a secret of some length"), "ada", "ada"), "it counts as a bearer token only")
			if policy != api.KeysOff {
				require.True(t, stored(acting, "", "bot"), "without a name it acts as itself")
				require.True(t, stored(plain, "ada", "plain"))
				require.True(t, stored(admin, "ada", "boss"))
				require.Equal(t, http.StatusOK, pauses(both, ""))
				b.call("POST", "/hub/resume", "", both.Clone(), api.Visitor{Keys: policy})
			}
			for name, header := range map[string]http.Header{"acting": acting, "both": both, "shown": shown, "plain": plain, "nothing": {}} {
				require.GreaterOrEqual(t, pauses(header, "root"), 401, name)
			}
			for _, wrong := range []string{"a secret of some lengt", "a secret of some length.", "A secret of some length", "x"} {
				w := b.call("GET", "/queue", "", bearer(wrong), api.Visitor{Keys: policy, Named: "ada", TenantSecret: secret, IP: "10.0.0.2"})
				require.Equal(t, http.StatusUnauthorized, w.Code, wrong)
			}
			w := b.call("GET", "/queue", "", shown.Clone(), api.Visitor{Keys: policy, TenantSecret: secret})
			require.Equal(t, http.StatusOK, w.Code, "it is let in without naming anybody, too")
		})
	}
}

// Guessing the secret counts like guessing a key, and so does guessing a machine's token, wherever
// it is shown.
func TestWrongTokensAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		audit := new(logtest.Log)
		b := newBench(t, 1, func(b *bench) { b.settings.Audit = slog.New(slog.NewTextHandler(audit, nil)) })
		secret := api.NewTenantSecret("a secret of some length")
		for n, call := range []struct {
			method, path, named string
		}{
			{"GET", "/queue", "ada"},
			{"GET", "/next-job", ""},
			{"GET", "/hub/v1/next-job?wait=1", ""},
			{"POST", "/complete-job/x", ""},
			{"POST", "/hub/v1/workers/x", ""},
			{"GET", "/hub/v1/job-input/x?name=y", ""},
			{"GET", "/hub/tunnel", ""},
		} {
			v := api.Visitor{Named: call.named, TenantSecret: secret, IP: "10.0.1." + string("0123456789"[n])}
			eventually(t, func() bool {
				w := b.call(call.method, call.path, "", bearer("wrong"), v)
				if w.Code != http.StatusTooManyRequests {
					require.Equal(t, http.StatusUnauthorized, w.Code, call.path)
					return false
				}
				require.NotEmpty(t, w.Header().Get("Retry-After"))
				return true
			}, time.Minute, time.Microsecond, call.path)
			require.Contains(t, audit.String(), v.IP)
			v.IP = "10.0.2.1"
			require.Equal(t, http.StatusUnauthorized, b.call(call.method, call.path, "", bearer("wrong"), v).Code, "a neighbour")
			v.IP = "10.0.1." + string("0123456789"[n])
			require.NotEqual(t, http.StatusTooManyRequests, b.call("GET", "/queue", "", bearer("a secret of some length"), v).Code)
		}
	})
}

// A key that only permits reading gets no secret that would let it do more, whatever route hands it
// out.
func TestReadKeysGetNoSecrets(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		hosts := must(egress.ParseHosts([]string{"hooks.example"}))(t)
		b := newBench(t, 1, withKeys(api.KeysRequired), func(b *bench) {
			b.settings.CallbackHosts, b.settings.CallbackSecrets = hosts, []string{"a secret of callbacks"}
		})
		reader := bearer(b.key(apikeys.Wanted{Name: "reader", Tenant: "ada", Scopes: []apikeys.Scope{apikeys.Read}}))
		writer := bearer(b.key(apikeys.Wanted{Name: "writer", Tenant: "ada"}))
		secret := b.hub.Callbacks.Secret("ada")
		require.NotEmpty(t, secret)
		status, _, text := b.ask("GET", "/hub/callbacks/secret", "", writer)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, text, secret)
		status, _, text = b.ask("GET", "/hub/callbacks/secret", "", reader)
		require.Equal(t, http.StatusForbidden, status)
		require.Equal(t, "missing_scope", kindOfError(t, text))
		for _, table := range b.rooms.Routers() {
			for pattern, methods := range table.All() {
				path := strings.ReplaceAll(strings.ReplaceAll(pattern.String(), "**", "a"), "*", "a")
				if strings.Contains(strings.Join(methods, " "), "GET") && !strings.Contains(path, "events") && !strings.HasSuffix(path, "/ws") {
					require.NotContains(t, b.call("GET", path, "", reader.Clone(), api.Visitor{Keys: api.KeysRequired}).Body.String(), secret, path)
				}
			}
		}
	})
}

// Anything that could change a machine takes more than a key: calls of ComfyUI-Manager need the
// scope admin as well as the operator's permission, and sockets of custom nodes the scope submit.
func TestDangerousRoutesOfKeys(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log := &logtest.Log{}
		b := newBench(t, 1, withKeys(api.KeysRequired), func(b *bench) {
			b.settings.Manager, b.settings.Passthrough = true, config.PassthroughOn
			b.settings.Audit = slog.New(slog.NewTextHandler(log, nil))
		})
		socket := func(secret string) http.Header {
			h := bearer(secret)
			h.Set("Connection", "Upgrade")
			h.Set("Upgrade", "websocket")
			return h
		}
		secrets := map[string]string{}
		for name, c := range map[string]struct {
			scopes                   []apikeys.Scope
			manager, socket, reading bool
		}{
			"both":  {[]apikeys.Scope{apikeys.Read, apikeys.Submit}, false, true, true},
			"read":  {[]apikeys.Scope{apikeys.Read}, false, false, true},
			"admin": {[]apikeys.Scope{apikeys.Admin}, true, true, true},
		} {
			secrets[name] = b.key(apikeys.Wanted{Name: name, Scopes: c.scopes})
			for path, header := range map[string]http.Header{"/manager/reboot": bearer(secrets[name]), "/pack/ws": socket(secrets[name]), "/pack/list": bearer(secrets[name])} {
				want := map[string]bool{"/manager/reboot": c.manager, "/pack/ws": c.socket, "/pack/list": c.reading}[path]
				status, _, text := b.ask("GET", path, "", header)
				require.Equal(t, want, status != http.StatusForbidden, "%s %s: %d %s", name, path, status, text)
			}
		}
		for _, path := range []string{"/experiment/models/download_missing/cancel", "/api/tasks/x", "/sdapi/v1/server-kill"} {
			for name, refused := range map[string]bool{"both": true, "read": true, "admin": false} {
				status, _, text := b.ask("POST", path, "", bearer(secrets[name]))
				require.Equal(t, refused, status == http.StatusForbidden, "%s %s: %d %s", name, path, status, text)
			}
		}
		require.Equal(t, 3, strings.Count(log.String(), "ComfyUI-Manager"))
		require.Contains(t, log.String(), "key=admin")
	})
}

func keyHeader(secret string) http.Header { return http.Header{"X-Api-Key": {secret}} }

// Which of two keys counts would be a guess, and with it the tenant.
func TestTwoKeysAreRefused(t *testing.T) {
	inBench(t, benchOf(1, withKeys(api.KeysRequired)), func(t *testing.T, b *bench) {
		ada, bob := b.key(apikeys.Wanted{Name: "ada"}), b.key(apikeys.Wanted{Name: "bob"})
		const secret = "a secret of some length"
		for name, header := range map[string]http.Header{
			"a bearer":      {"X-Api-Key": {ada}, "Authorization": {"Bearer " + bob}},
			"a password":    {"X-Api-Key": {ada}, "Authorization": basic("x", bob)["Authorization"]},
			"a second line": {"X-Api-Key": {ada, bob}},
			"a third line":  {"X-Api-Key": {"abc", ada, bob}},
			"an invalid":    {"X-Api-Key": {ada}, "Authorization": {"Bearer " + ada + "x"}},
			"the secret":    {"X-Api-Key": {ada}, "Authorization": {"Bearer " + secret}},
		} {
			for _, policy := range []api.KeyPolicy{api.KeysOptional, api.KeysRequired} {
				w := b.call("GET", "/queue", "", header.Clone(), api.Visitor{Keys: policy, TenantSecret: api.NewTenantSecret(secret)})
				require.Equal(t, http.StatusBadRequest, w.Code, name)
				require.Equal(t, "several_keys", kindOfError(t, w.Body.String()), name)
				require.NotContains(t, w.Body.String(), ada[9:30], name)
			}
			w := b.call("GET", "/queue", "", header.Clone(), api.Visitor{TenantSecret: api.NewTenantSecret(secret)})
			require.Equal(t, http.StatusOK, w.Code, "%s: where keys are off they mean nothing", name)
		}
	})
}
