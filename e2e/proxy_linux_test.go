package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

const bridgeSecret = "the secret of the bridge, which nobody else has"

// clientAddress is where the clients of nginx are: neither nginx nor the hub.
const clientAddress = "127.0.0.5"

// serversOf finds the options of a server in a Caddyfile.
var serversOf = regexp.MustCompile(`(?ms)^\s*servers \{\n(.*?)^\s*\}`)

// proxied is a hub with sites behind an nginx whose configuration is that of the docs.
type proxied struct {
	*fleet
	// through are the URLs of nginx, by what the sites behind them were told of nginx.
	through map[string]string
}

func behindNginx(t *testing.T) proxied {
	t.Helper()
	nginx := needNginx(t)
	var told string
	for _, block := range codeIn(t, "upgrade.md", "caddyfile") {
		if found := serversOf.FindStringSubmatch(block); found != nil {
			told = strings.Replace(found[1], "10.0.0.1/32", "127.0.0.1/32", 1)
		}
	}
	require.Contains(t, told, "127.0.0.1/32")

	p := proxied{fleet: newFleet(t, "embedded"), through: map[string]string{}}
	options := map[string]string{"undeclared": "", "docs": told, "not strict": strings.Replace(told, "trusted_proxies_strict", "", 1)}
	names := slices.Sorted(maps.Keys(options))
	addresses := []string{p.Addr} // that of the first is where the fleet looks whether the hub is there
	for range names[1:] {
		address := must.Get(freeport.Address())(t)
		addresses = append(addresses, address)
	}
	var servers, sites strings.Builder
	for n, name := range names {
		address := addresses[n]
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		if options[name] != "" {
			fmt.Fprintf(&servers, "\tservers %s {\n%s\n\t}\n", address, options[name])
		}
		fmt.Fprintf(&sites, "http://:%s {\n\tbind 127.0.0.1\n\tcomfyhub {\n\t\ttrust_tenant_from 127.0.0.1 10.0.0.7\n\t\ttenant_secret {env.TEST_TENANT_SECRET}\n\t\tkeys optional\n\t}\n}\n", port)
	}
	p.Set.Caddyfile = filepath.Join(p.Dir, "Caddyfile")
	require.NoError(t, os.WriteFile(p.Set.Caddyfile, fmt.Appendf(nil, `{
	admin {$COMFYHUB_ADMIN}
	persist_config off
%s
	comfyhub {
		data {$COMFYHUB_DATA}
		gossip {
			bind {$COMFYHUB_GOSSIP}
		}
		operators root
	}
}
%s`, servers.String(), sites.String()), 0o600))
	p.Env = []string{"TEST_TENANT_SECRET=" + bridgeSecret}
	p.startHub()
	p.startAgent("gpu", 1)
	p.idle(1)

	for n, front := range p.startNginx(nginx, addresses...) {
		p.through[names[n]] = front
	}
	return p
}

// elsewhere is a client that connects from an address of its own.
func elsewhere() *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(clientAddress)}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
}

// Behind nginx as the docs show it, the hub limits and writes down clients by the address that
// nginx has seen, whatever they claim; and pages and sockets of the site work.
func TestNginxOfTheDocs(t *testing.T) {
	t.Parallel()
	p := behindNginx(t)
	site := p.through["docs"]
	status, answer := callFrom(t, elsewhere(), http.MethodPost, site+"/queue", strings.NewReader(`{"clear": true}`), http.Header{"Origin": {site}}, "")
	require.Equal(t, http.StatusOK, status, answer)
	status, _ = callFrom(t, elsewhere(), http.MethodPost, site+"/queue", strings.NewReader(`{"clear": true}`), http.Header{"Origin": {"http://127.0.0.1"}}, "")
	require.Equal(t, http.StatusForbidden, status, "a page at another port of the machine")
	conn, _, err := websocket.Dial(t.Context(), site+"/ws?clientId=a", &websocket.DialOptions{HTTPClient: elsewhere(), HTTPHeader: http.Header{"Origin": {site}}})
	require.NoError(t, err)
	require.NoError(t, conn.CloseNow())

	for _, front := range p.through {
		p.nobodyBecomesAnother(front)
	}
	f := p.fleet
	attempt := func(name string, n int) int {
		status, _ := callFrom(t, elsewhere(), http.MethodGet, p.through[name]+"/queue", nil, http.Header{
			"Authorization": {"Bearer comfyhub_wrong"}, "X-Forwarded-For": {fmt.Sprintf("192.0.2.%d", n%250+1)}, "X-Real-Ip": {"192.0.2.1"},
		}, "")
		return status
	}
	for _, name := range []string{"docs", "undeclared", "not strict"} {
		tries := 0
		f.eventually(func() bool {
			tries++
			return attempt(name, tries) == http.StatusTooManyRequests
		}, "many wrong keys, each from another address as the client claims, are limited")
	}
	require.NotContains(t, p.Hub.Log(), `"address":"192.0.2.`)
	require.Contains(t, p.Hub.Log(), `"address":"`+clientAddress+`"`)
	require.Contains(t, p.Hub.Log(), `"address":"127.0.0.1"`, "where the proxy was not declared, all have its address")
	for _, doubt := range []string{"trust_tenant_from goes by addresses", "trust_tenant_from is without effect", "without trusted_proxies_strict"} {
		require.Contains(t, p.Hub.Log(), doubt)
	}
	check := must.Get(http.Get("http://" + p.Admin + "/comfyhub/check"))(t)
	defer check.Body.Close()
	require.Contains(t, string(must.Get(io.ReadAll(check.Body))(t)), "act_for_tenants")
}

// nobodyBecomesAnother checks that whoever comes through nginx is nobody but a client, whatever they
// write about themselves: neither another tenant nor an operator.
func (p proxied) nobodyBecomesAnother(front string) {
	t := p.t
	t.Helper()
	// With the secret a bridge may name a tenant, through nginx as well.
	bridge := http.Header{"Authorization": {"Bearer " + bridgeSecret}, "X-Comfyhub-Tenant": {"ada"}}
	status, body := call(t, http.MethodPost, front+"/upload/image", form("hers.txt", []byte("hers")), bridge, "multipart/form-data; boundary=b")
	require.Equal(t, http.StatusOK, status, "%s", body)
	const hers = "/view?filename=hers.txt&type=input"
	status, body = call(t, http.MethodGet, front+hers, nil, bridge, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.Equal(t, "hers", string(body))

	for _, header := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "Via", "X-Nothing"} {
		for _, address := range []string{"10.0.0.7", "127.0.0.1", "10.0.0.7, 127.0.0.1", "for=10.0.0.7"} {
			claims := http.Header{header: {address}, "X-Comfyhub-Tenant": {"ada"}}
			status, body := call(t, http.MethodGet, front+hers, nil, claims, "")
			require.Equal(t, http.StatusNotFound, status, "%v: %s", claims, body)
			claims.Set("X-Comfyhub-Tenant", "root")
			status, body = call(t, http.MethodPost, front+"/hub/pause", nil, claims, "")
			require.GreaterOrEqual(t, status, 400, "%v: %s", claims, body)
		}
	}
}

// Each Caddyfile of the docs that names proxies takes the clients' addresses from them only.
func TestProxiesInTheDocsAreStrict(t *testing.T) {
	t.Parallel()
	pages := must.Get(filepath.Glob("../docs/*.md"))(t)
	met := 0
	for _, page := range pages {
		for _, block := range codeIn(t, filepath.Base(page), "caddyfile") {
			if strings.Contains(block, "trusted_proxies ") {
				met++
				require.Contains(t, block, "trusted_proxies_strict", page)
			}
		}
	}
	require.GreaterOrEqual(t, met, 3)
}

// codeIn returns the blocks of code in a page of the docs, as far as a list has not
// indented them.
func codeIn(t *testing.T, page, language string) (blocks []string) {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join("..", "docs", page)))(t)
	fence := regexp.MustCompile("(?ms)^ *```" + language + "\n(.*?)^ *```$")
	for _, found := range fence.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, found[1])
	}
	return blocks
}

// needNginx is the path of nginx; a test that finds none is skipped.
func needNginx(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("nginx is not installed")
	}
	return path
}

// startNginx starts an nginx with what docs/upgrade.md says, in front of addresses of the hub,
// and returns its URLs in their order.
func (f *fleet) startNginx(path string, hubs ...string) (fronts []string) {
	f.t.Helper()
	page := must.Get(os.ReadFile("../docs/upgrade.md"))(f.t)
	upgrade := regexp.MustCompile("map \\$http_upgrade [^`]*").FindString(string(page))
	require.NotEmpty(f.t, upgrade)
	location := codeIn(f.t, "upgrade.md", "nginx")
	require.Len(f.t, location, 1)
	var servers strings.Builder
	for _, hub := range hubs {
		address := must.Get(freeport.Address())(f.t)
		toHub := strings.Replace(location[0], "10.0.0.2:8188", hub, 1)
		require.NotEqual(f.t, location[0], toHub)
		fmt.Fprintf(&servers, "server {\nlisten %s;\n%s\n}\n", address, toHub)
		fronts = append(fronts, "http://"+address)
	}
	folder := filepath.Join(f.Dir, "nginx")
	require.NoError(f.t, os.MkdirAll(folder, 0o700))
	config := filepath.Join(folder, "nginx.conf")
	require.NoError(f.t, os.WriteFile(config, fmt.Appendf(nil, `
daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/n1; proxy_temp_path %[1]s/n2; fastcgi_temp_path %[1]s/n3; uwsgi_temp_path %[1]s/n4; scgi_temp_path %[1]s/n5;
	%[2]s
	%[3]s
}
`, folder, upgrade, servers.String()), 0o600))
	nginx := must.Get(f.Start(programs.Spec{Name: "nginx", Path: path, Args: []string{"-p", folder, "-e", "stderr", "-c", config}}))(f.t)
	require.NoError(f.t, nginx.Await(f.t.Context(), "nginx answers", func(ctx context.Context) error {
		return programs.Get(ctx, fronts[0]+"/queue", nil)
	}))
	return fronts
}

// call makes a request and returns the answer.
func call(t *testing.T, method, url string, body io.Reader, header http.Header, kind string) (status int, answer []byte) {
	t.Helper()
	return callFrom(t, http.DefaultClient, method, url, body, header, kind)
}

func callFrom(t *testing.T, c *http.Client, method, url string, body io.Reader, header http.Header, kind string) (status int, answer []byte) {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, url, body))(t)
	r.Header = header.Clone()
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	resp := must.Get(c.Do(r))(t)
	defer resp.Body.Close()
	answer = must.Get(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, answer
}
