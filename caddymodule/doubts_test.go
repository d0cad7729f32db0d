package caddymodule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// provisioning is held while a configuration is provisioned: Caddy writes its default
// storage each time.
var provisioning sync.Mutex

func provision(t *testing.T, c *caddy.Config) caddy.Context {
	t.Helper()
	provisioning.Lock()
	defer provisioning.Unlock()
	return must.Get(caddy.ProvisionContext(c))(t)
}

// provisioned is the app of a Caddyfile, with the sites that serve its hub.
func provisioned(t *testing.T, text string) *App {
	t.Helper()
	config, err := adapt(t, text)
	require.NoError(t, err, text)
	var c caddy.Config
	require.NoError(t, json.Unmarshal(config, &c))
	c.Admin = &caddy.AdminConfig{Disabled: true}
	ctx := provision(t, &c)
	app := must.Get(ctx.App("comfyhub"))(t)
	must.Get(ctx.App("http"))(t)
	hubs := app.(*App)
	t.Cleanup(func() { require.NoError(t, hubs.Cleanup()) })
	return hubs
}

// doubtsOf are what is doubtful about a Caddyfile.
func doubtsOf(t *testing.T, text string) (list []config.Finding, open *config.Finding) {
	t.Helper()
	hubs := provisioned(t, text)
	list = hubs.doubts()
	for _, site := range hubs.sites {
		list = append(list, site.doubts()...)
	}
	return list, openDoubt(hubs.Operators, hubs.sites)
}

// A hub does not start where another program listens: neither beside a ComfyUI, for which "address
// already in use" would be all that is said, nor beside another hub, with which Caddy would share
// the address in silence. Its configuration is valid all the same.
func TestOccupiedAddress(t *testing.T) {
	t.Parallel()
	answers := func(header string) string {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if header != "" {
				w.Header().Set(header, "1")
			}
			fmt.Fprint(w, `{"system": {"comfyui_version": "0.33.0"}, "devices": []}`)
		}))
		server.Listener.Close()
		shared := must.Get(caddy.NetworkAddress{Network: "tcp", Host: "127.0.0.1"}.Listen(t.Context(), 0, net.ListenConfig{}))(t)
		server.Listener = shared.(net.Listener)
		server.Start()
		t.Cleanup(server.Close)
		return strings.TrimPrefix(server.URL, "http://")
	}
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	for address, want := range map[string]string{
		answers(""): "ComfyUI answers at ", answers(comfyui.HubHeader): "another hub already answers at ",
		strings.TrimPrefix(other.URL, "http://"): "another program already listens at ", must.Get(freeport.Address())(t): "",
	} {
		host, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		hubs := provisioned(t, "http://:"+port+" {\nbind "+host+"\ncomfyhub\n}")
		require.NoError(t, hubs.Validate())
		// Other tests may have loaded a configuration, beside which nobody asks.
		if hubs.occupied = occupied(hubs.sites[0]); want == "" {
			require.NoError(t, hubs.occupied, address)
			continue
		}
		require.ErrorContains(t, hubs.Start(), want+address)
		require.ErrorContains(t, hubs.Start(), "COMFYHUB_ADDR=127.0.0.1:8100")
	}
}

// A hub that asks nobody who they are says so if other machines reach it.
func TestOpenHubs(t *testing.T) {
	t.Parallel()
	const login = "basic_auth {\nada $2a$14$qqqqqqqqqqqqqqqqqqqqqOqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq\n}\n"
	for site, open := range map[string]bool{
		"http://:8188 {\ncomfyhub\n}":                                                             true,
		"http://:8188 {\nbind 10.0.0.1\nencode gzip\ncomfyhub\n}":                                 true,
		"http://:8188 {\nbind 127.0.0.1 10.0.0.1\ncomfyhub\n}":                                    true,
		"http://:8188 {\nbind 127.0.0.1\ncomfyhub\n}":                                             false,
		"http://:8188 {\nbind ::1\ncomfyhub\n}":                                                   false,
		"http://:8188 {\nbind unix//run/hub.sock\ncomfyhub\n}":                                    false,
		"http://:8188 {\ncomfyhub {\nkeys required\n}\n}":                                         false,
		"http://:8188 {\ncomfyhub {\nkeys optional\n}\n}":                                         true,
		"http://:8188 {\ncomfyhub {\ntenant studio\n}\n}":                                         true,
		"http://:8188 {\ncomfyhub {\ntenant {http.request.header.Remote-User}\n}\n}":              false,
		"http://:8188 {\n" + login + "comfyhub\n}":                                                false,
		"http://:8188 {\nhandle /x/* {\nrespond 404\n}\nhandle {\n" + login + "comfyhub\n}\n}":    false,
		"http://:8188 {\nroute {\ncomfyhub\n" + login + "}\n}":                                    true,
		"http://:8188 {\nforward_auth localhost:9091 {\nuri /auth\n}\ncomfyhub\n}":                false,
		"http://a.example:8188 {\n" + login + "comfyhub\n}\nhttp://b.example:8188 {\ncomfyhub\n}": true,
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			_, doubt := doubtsOf(t, fmt.Sprintf("{\ncomfyhub {\ndata %s\n}\n}\n%s\n", t.TempDir(), site))
			require.Equal(t, open, doubt != nil, site)
		})
	}
}

// What goes by something that others can write, and what others can read, is told when the
// configuration is validated.
func TestDoubts(t *testing.T) {
	const strict, loose = "trusted_proxies static 10.0.0.0/16\ntrusted_proxies_strict", "trusted_proxies static 10.0.0.0/16"
	type row struct {
		servers, app, site string
		want               []string
	}
	beside.Cases(t, map[string]row{
		"nothing":         {strict, "", "", nil},
		"empty":           {strict, "frontend {env.NONE}\nstorage {env.COMFYHUB_STORAGE}", "", []string{"{env.NONE} in the configuration is empty"}},
		"not strict":      {loose, "", "", []string{"without trusted_proxies_strict"}},
		"by addresses":    {strict, "", "trust_tenant_from 10.0.0.7", []string{"proves little"}},
		"by client's":     {loose, "", "trust_tenant_from 10.0.0.7", []string{"clients can write the address", "is without effect"}},
		"secrets":         {strict, "secret 0123456789abcdef\nredis redis://:hunter22@redis:6379\ngossip {\nkey 0123456789abcdef\n}", "", []string{"in redis, secret, gossip { key }"}},
		"secrets outside": {strict, "secret {env.NONE}{file./dev/null}\nredis redis://:{env.NONE}@redis:6379\ngossip {\nkey {env.NONE}\n}", "tenant_secret {env.NONE}", nil},
	}, func(t *testing.T, tc row) {
		list, _ := doubtsOf(t, fmt.Sprintf("{\nservers {\n%s\n}\ncomfyhub {\ndata %s\n%s\n}\n}\nhttp://:8188 {\nbind 127.0.0.1\ncomfyhub {\n%s\n}\n}\n", tc.servers, t.TempDir(), tc.app, tc.site))
		require.Len(t, list, len(tc.want))
		for n, want := range tc.want {
			require.Contains(t, list[n].Says, want)
			require.NotContains(t, list[n].Says+list[n].Do, "0123456789abcdef")
			require.NotContains(t, strings.ToLower(list[n].Says), "hunter22")
		}
	})
}

// What is doubtful about all sites together is told when a configuration is only validated, too:
// once, and not again where it is started.
func TestDoubtsAtValidate(t *testing.T) {
	const operators, login = "operators ada\n", "basic_auth {\nada $2a$14$qqqqqqqqqqqqqqqqqqqqqOqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq\n}\n"
	type row struct {
		app, sites string
		want       int
	}
	beside.Cases(t, map[string]row{
		"nothing":            {"", "http://:8188 {\nbind 127.0.0.1\ncomfyhub\n}\n", 0},
		"operators, no site": {operators, "http://:8188 {\nbind 127.0.0.1\n" + login + "comfyhub\n}\n", 1},
		"nobody can log in":  {operators, "http://:8188 {\nbind 127.0.0.1\ncomfyhub\n}\n", 2},
		"no site":            {"", "http://:8188 {\nbind 127.0.0.1\nrespond hi\n}\n", 1},
		"empty placeholder":  {"frontend {env.NONE}\n", "http://:8188 {\nbind 127.0.0.1\ncomfyhub\n}\n", 0}, // told before
		"operators, a site":  {operators, "http://:8188 {\nbind 127.0.0.1\n" + login + "comfyhub\n}\nhttp://:8187 {\nbind 127.0.0.1\ncomfyhub_operators\n}\n", 0},
		"open":               {"", "http://:8188 {\ncomfyhub\n}\n", 1},
		"all":                {operators, "http://:8188 {\ncomfyhub\n}\n", 3},
	}, func(t *testing.T, tc row) {
		hubs := provisioned(t, fmt.Sprintf("{\ncomfyhub {\ndata %s\n%s}\n}\n%s", t.TempDir(), tc.app, tc.sites))
		var told bytes.Buffer
		hubs.logs = slog.NewTextHandler(&told, nil)
		require.NoError(t, hubs.Cleanup())
		require.NoError(t, hubs.Cleanup())
		require.Equal(t, tc.want, strings.Count(told.String(), "level=WARN"), told.String())
		require.Equal(t, tc.app != "" && tc.want > 0, strings.Contains(told.String(), "comfyhub_operators"), told.String())
	})
}
