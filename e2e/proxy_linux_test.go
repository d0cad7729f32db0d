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

	"github.com/comfyhub/comfyhub/internal/freeport"
	"github.com/comfyhub/comfyhub/internal/programs"
)

// clientAddress is where the clients of nginx are: neither nginx nor the hub.
const clientAddress = "127.0.0.5"

// codeIn returns the blocks of code in a page of the docs, as far as a list has not
// indented them.
func codeIn(t *testing.T, page, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", page))
	require.NoError(t, err)
	fence := regexp.MustCompile("(?ms)^ *```" + language + "\n(.*?)^ *```$")
	for _, found := range fence.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, found[1])
	}
	return blocks
}

// serversOf finds the options of a server in a Caddyfile.
var serversOf = regexp.MustCompile(`(?ms)^\s*servers \{\n(.*?)^\s*\}`)

// proxied is a hub with sites behind an nginx whose configuration is that of the docs.
type proxied struct {
	*fleet
	// direct are the sites' URLs, through those of nginx, by what the sites were told of
	// nginx.
	direct, through map[string]string
}

// tenantSecret is what a bot bridge would show.
const tenantSecret = "the secret of a bot bridge"

func behindNginx(t *testing.T) proxied {
	t.Helper()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("no nginx on the PATH")
	}
	page, err := os.ReadFile("../docs/upgrade.md")
	require.NoError(t, err)
	location := codeIn(t, "upgrade.md", "nginx")
	require.Len(t, location, 1)
	upgrade := regexp.MustCompile("map \\$http_upgrade [^`]*").FindString(string(page))
	require.NotEmpty(t, upgrade)
	var told string
	for _, block := range codeIn(t, "upgrade.md", "caddyfile") {
		if found := serversOf.FindStringSubmatch(block); found != nil {
			told = strings.Replace(found[1], "10.0.0.1/32", "127.0.0.1/32", 1)
		}
	}
	require.Contains(t, told, "127.0.0.1/32")

	p := proxied{fleet: newFleet(t, "embedded"), direct: map[string]string{}, through: map[string]string{}}
	options := map[string]string{"undeclared": "", "docs": told, "not strict": strings.Replace(told, "trusted_proxies_strict", "", 1)}
	var servers, sites, fronts strings.Builder
	for n, name := range slices.Sorted(maps.Keys(options)) {
		address := p.Addr // that of the first is where the fleet looks whether the hub is there
		if n > 0 {
			address, err = freeport.Address()
			require.NoError(t, err)
		}
		front, err := freeport.Address()
		require.NoError(t, err)
		p.direct[name], p.through[name] = "http://"+address, "http://"+front
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		if options[name] != "" {
			fmt.Fprintf(&servers, "\tservers %s {\n%s\n\t}\n", address, options[name])
		}
		fmt.Fprintf(&sites, "http://:%s {\n\tbind 127.0.0.1\n\tcomfyhub {\n\t\ttrust_tenant_from 127.0.0.1\n\t\ttenant_secret {env.TEST_TENANT_SECRET}\n\t\tkeys optional\n\t}\n}\n", port)
		fmt.Fprintf(&fronts, "server {\nlisten %s;\n%s\n}\n", front, strings.Replace(location[0], "10.0.0.2:8188", address, 1))
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
	p.Env = []string{"TEST_TENANT_SECRET=" + tenantSecret}
	p.startHub()
	p.startAgent("gpu", 1)
	p.idle(1)

	config := filepath.Join(p.Dir, "nginx.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
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
`, p.Dir, upgrade, fronts.String()), 0o600))
	front, err := p.Start(programs.Spec{Name: "nginx", Path: nginx, Args: []string{"-p", p.Dir, "-e", "stderr", "-c", config}})
	require.NoError(t, err)
	require.NoError(t, front.Await(t.Context(), "nginx answers", func(ctx context.Context) error {
		return programs.Get(ctx, p.through["docs"]+"/queue", nil)
	}))
	return p
}

// elsewhere is a client that connects from an address of its own.
func elsewhere() *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(clientAddress)}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
}

// sent sends a request and returns the answer.
func sent(t *testing.T, c *http.Client, method, url string, header map[string]string, body io.Reader) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	resp, err := c.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(answer)
}

// Behind nginx as the docs show it, the hub limits and writes down clients by the address that
// nginx has seen, whatever they claim; and pages and sockets of the site work.
func TestNginxOfTheDocs(t *testing.T) {
	p := behindNginx(t)
	site := p.through["docs"]
	status, answer := sent(t, elsewhere(), http.MethodPost, site+"/queue", map[string]string{"Origin": site}, strings.NewReader(`{"clear": true}`))
	require.Equal(t, http.StatusOK, status, answer)
	status, _ = sent(t, elsewhere(), http.MethodPost, site+"/queue", map[string]string{"Origin": "http://127.0.0.1"}, strings.NewReader(`{"clear": true}`))
	require.Equal(t, http.StatusForbidden, status, "a page at another port of the machine")
	conn, _, err := websocket.Dial(t.Context(), site+"/ws?clientId=a", &websocket.DialOptions{HTTPClient: elsewhere(), HTTPHeader: http.Header{"Origin": {site}}})
	require.NoError(t, err)
	require.NoError(t, conn.CloseNow())

	f := p.fleet
	attempt := func(name string, n int) int {
		status, _ := sent(t, elsewhere(), http.MethodGet, p.through[name]+"/queue", map[string]string{
			"Authorization": "Bearer comfyhub_wrong", "X-Forwarded-For": fmt.Sprintf("192.0.2.%d", n%250+1), "X-Real-IP": "192.0.2.1",
		}, nil)
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
	check, err := http.Get("http://" + p.Admin + "/comfyhub/check")
	require.NoError(t, err)
	defer check.Body.Close()
	text, err := io.ReadAll(check.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "act_for_tenants")
}

// Each Caddyfile of the docs that names proxies takes the clients' addresses from them only.
func TestProxiesInTheDocsAreStrict(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
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
