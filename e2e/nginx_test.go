package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/freeport"
	"github.com/comfyhub/comfyhub/internal/testing/must"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

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
