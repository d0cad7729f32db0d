package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

// A script on ComfyUI's page has the login of the operator who looks, and none of the
// operator's commands; at the operators' site they work, for pages of that site alone.
func TestOperatorsSite(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	require.NoError(t, err)
	f.Set.Caddyfile = filepath.Join(f.Dir, "Caddyfile")
	require.NoError(t, os.WriteFile(f.Set.Caddyfile, fmt.Appendf(nil, `{
	admin %[1]s
	persist_config off
	comfyhub {
		data %[2]s
		gossip {
			bind %[3]s
		}
		operators root
	}
}
(logins) {
	@some not path /queue
	basic_auth @some {
		root %[4]s
		ada %[4]s
	}
}
http://%[5]s {
	import logins
	comfyhub
}
http://%[6]s {
	import logins
	comfyhub_operators
}
`, f.Admin, f.Data, f.Gossip, hash, f.Addr, f.Operators), 0o600))
	f.startHub()
	comfy, operators := f.URL(""), "http://"+f.Operators

	login := func(user string, more http.Header) http.Header {
		r := &http.Request{Header: http.Header{}}
		r.SetBasicAuth(user, "secret")
		maps.Copy(r.Header, more)
		return r.Header
	}
	page := func(origin, site string) http.Header {
		h := http.Header{"Origin": {origin}}
		if site != "" {
			h["Sec-Fetch-Site"], h["Sec-Fetch-Mode"] = []string{site}, []string{"cors"}
		}
		return h
	}
	commands := []string{"/hub/pause", "/hub/resume", "/hub/pause?tenant=ada", "/hub/resume?tenant=ada"}
	for _, command := range commands {
		for _, header := range []http.Header{page(comfy, "same-origin"), page(comfy, ""), {"Sec-Fetch-Site": {"same-origin"}}, {"Cookie": {"comfyhub_browser=0"}}} {
			status, body := call(t, http.MethodPost, comfy+command, nil, login("root", header), "")
			require.Equal(t, http.StatusForbidden, status, "%s %v: %s", command, header, body)
			require.Contains(t, string(body), operators+"/hub/", "it says where to go")
		}
		// A page at the operators' site may, and so may a program at either.
		status, body := call(t, http.MethodPost, operators+command, nil, login("root", page(operators, "same-origin")), "")
		require.Equal(t, http.StatusOK, status, "%s: %s", command, body)
		for _, site := range []string{comfy, operators} {
			status, body := call(t, http.MethodPost, site+command, nil, login("root", nil), "")
			require.Equal(t, http.StatusOK, status, "%s%s: %s", site, command, body)
		}
		// No page of another origin may, such as that of ComfyUI at another port.
		for _, header := range []http.Header{page(comfy, "same-site"), page(comfy, ""), page("http://127.0.0.1", ""), page("null", ""), {"Sec-Fetch-Site": {"same-site"}}} {
			status, body := call(t, http.MethodPost, operators+command, nil, login("root", header), "")
			require.Equal(t, http.StatusForbidden, status, "%s %v: %s", command, header, body)
		}
		// Nor may anybody else.
		status, body = call(t, http.MethodPost, operators+command, nil, login("ada", page(operators, "same-origin")), "")
		require.Equal(t, http.StatusForbidden, status, "%s: %s", command, body)
	}
	for path, want := range map[string]int{"/prompt": 404, "/view?filename=x.png": 404, "/extensions/core.js": 404, "/ws": 404, "/hub/": 200, "/hub/jobs": 200, "/hub/instances": 200} {
		status, body := call(t, http.MethodGet, operators+path, nil, login("root", nil), "")
		require.Equal(t, want, status, "%s: %s", path, body)
	}
	for _, path := range []string{"/hub/", "/hub/jobs", "/hub/stats"} {
		status, _ := call(t, http.MethodGet, comfy+path, nil, login("root", page(comfy, "same-origin")), "")
		require.Equal(t, http.StatusOK, status, "%s is still shown", path)
	}
}
