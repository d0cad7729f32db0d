package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/freeport"
	"github.com/comfyhub/comfyhub/internal/programs"
)

// nginxInDocs is the block that docs/upgrade.md tells people to put into their nginx.
var nginxInDocs = regexp.MustCompile("(?s)```nginx\n(.*?)```")

const bridgeSecret = "the secret of the bridge, which nobody else has"

// Whoever comes through an nginx as the docs set it up is nobody but a client, whatever
// they write about themselves: neither another tenant nor an operator.
func TestNobodyBecomesAnotherThroughNginx(t *testing.T) {
	t.Parallel()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("nginx is not installed")
	}
	for name, c := range map[string]struct{ servers, trusted string }{
		"as in the docs":              {"trusted_proxies static 127.0.0.0/8\n\t\ttrusted_proxies_strict", "10.0.0.7"},
		"without strict":              {"trusted_proxies static 127.0.0.0/8", "10.0.0.7"},
		"undeclared, on this machine": {"", "127.0.0.1"},
		"declared, on this machine":   {"trusted_proxies static 127.0.0.0/8\n\t\ttrusted_proxies_strict", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "embedded")
			f.Env = append(f.Env, "BRIDGE_SECRET="+bridgeSecret)
			f.Set.Caddyfile = filepath.Join(f.Dir, "Caddyfile")
			require.NoError(t, os.WriteFile(f.Set.Caddyfile, fmt.Appendf(nil, `{
	admin %s
	persist_config off
	servers {
		%s
	}
	comfyhub {
		data %s
		gossip {
			bind %s
		}
		operators root
	}
}
http://%s {
	comfyhub {
		hosts *
		trust_tenant_from %s
		tenant_secret {env.BRIDGE_SECRET}
	}
}
`, f.Admin, c.servers, f.Data, f.Gossip, f.Addr, c.trusted), 0o600))
			f.startHub()
			front := f.startNginx(nginx)

			// With the secret a bridge may name a tenant, through nginx as well.
			bridge := http.Header{"Authorization": {"Bearer " + bridgeSecret}, "X-Comfyhub-Tenant": {"ada"}}
			status, body := call(t, http.MethodPost, front+"/upload/image", form("hers.txt", []byte("hers")), bridge, "multipart/form-data; boundary=b")
			require.Equal(t, http.StatusOK, status, "%s", body)
			status, body = call(t, http.MethodGet, front+"/view?filename=hers.txt&type=input", nil, bridge, "")
			require.Equal(t, http.StatusOK, status, "%s", body)
			require.Equal(t, "hers", string(body))

			for _, header := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "Via", "X-Nothing"} {
				for _, address := range []string{"10.0.0.7", "127.0.0.1", "10.0.0.7, 127.0.0.1", "for=10.0.0.7"} {
					claims := http.Header{header: {address}, "X-Comfyhub-Tenant": {"ada"}}
					status, body := call(t, http.MethodGet, front+"/view?filename=hers.txt&type=input", nil, claims, "")
					require.Equal(t, http.StatusNotFound, status, "%v: %s", claims, body)
					claims.Set("X-Comfyhub-Tenant", "root")
					status, body = call(t, http.MethodPost, front+"/hub/pause", nil, claims, "")
					require.GreaterOrEqual(t, status, 400, "%v: %s", claims, body)
				}
			}
		})
	}
}

// startNginx starts an nginx with what the docs say, and returns its URL.
func (f *fleet) startNginx(path string) string {
	f.t.Helper()
	page, err := os.ReadFile("../docs/upgrade.md")
	require.NoError(f.t, err)
	block := nginxInDocs.FindSubmatch(page)
	require.NotNil(f.t, block)
	location := bytes.ReplaceAll(block[1], []byte("http://10.0.0.2:8188"), []byte("http://"+f.Addr))
	require.NotEqual(f.t, block[1], location)
	address, err := freeport.Address()
	require.NoError(f.t, err)
	folder := filepath.Join(f.Dir, "nginx")
	require.NoError(f.t, os.MkdirAll(folder, 0o700))
	config := filepath.Join(folder, "nginx.conf")
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // whose folder this is
	}
	require.NoError(f.t, os.WriteFile(config, fmt.Appendf(nil, `daemon off;
%s
worker_processes 1;
pid %s/pid;
events {}
http {
	access_log off;
	client_body_temp_path %s/body;
	proxy_temp_path %s/proxy;
	map $http_upgrade $connection_upgrade { default upgrade; '' close; }
	server {
		listen %s;
		%s
	}
}
`, user, folder, folder, folder, address, location), 0o600))
	_, err = f.Start(programs.Spec{Name: "nginx", Path: path, Args: []string{"-c", config, "-e", "stderr"}})
	require.NoError(f.t, err)
	f.eventually(func() bool {
		resp, err := http.Get("http://" + address + "/queue") //nolint:noctx // it is on this machine
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, "nginx passes requests on")
	return "http://" + address
}

func call(t *testing.T, method, url string, body io.Reader, header http.Header, kind string) (status int, answer []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	r.Header = header.Clone()
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, answer
}
