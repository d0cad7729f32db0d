package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// evil is a ComfyUI whose page, scripts and list of extensions are an attacker's.
func (f *fleet) evil(comfyui string) string {
	f.t.Helper()
	u, err := url.Parse(comfyui)
	require.NoError(f.t, err)
	proxy := httputil.NewSingleHostReverseProxy(u)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/", strings.HasSuffix(r.URL.Path, ".js"):
			_, _ = io.WriteString(w, "evil")
		case r.URL.Path == "/extensions":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `["/extensions/evil/evil.js"]`)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	f.t.Cleanup(srv.Close)
	return srv.URL
}

// A machine that joins later is not the web UI of everybody: not by a name that is the first of
// all, not by a token, and not while the one that the page comes from is away.
func TestNoNewcomerIsThePage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.Env = append(f.Env, "COMFYHUB_GOSSIP_KEY=the key of the whole fleet")
	f.startHub()
	state := func(name string) []string { return []string{"--state", filepath.Join(f.Dir, name)} }
	box := f.startAgent("zoe", 1, state("zoe")...)
	f.idle(1)
	get := func(path string) (int, string) {
		resp, err := http.Get(f.URL(path))
		if err != nil {
			return 0, ""
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body) // the test fails if part of it is missing
		return resp.StatusCode, string(body)
	}
	status := func(want int) func() bool {
		return func() bool { got, _ := get("/"); return got == want }
	}
	f.eventually(status(http.StatusOK), "the page of the first agent")
	_, page := get("/")
	require.NotContains(t, page, "evil")

	f.agent("000", append([]string{"run", "--join", f.Gossip, "--name", "000", "--comfyui", f.evil(f.simulate("000-comfyui"))}, state("000")...)...)
	f.pullFrom("00", f.Addr, f.evil(f.simulate("00-comfyui")))
	f.idle(3)
	harmless := func(when string) {
		t.Helper()
		for _, path := range []string{"/", "/index.html", "/extensions", "/extensions/evil/evil.js", "/evil.js", "/api/pack/evil.js", "/assets/index-1a2b3c4d.js"} {
			if strings.HasPrefix(path, "/assets/") && when == "away" {
				continue // it waits for the machine to come back
			}
			_, body := get(path)
			require.NotContains(t, body, "evil\"", when+path)
			require.NotEqual(t, "evil", body, when+path)
			require.NotContains(t, body, "evil.js\"]", when+path)
		}
	}
	harmless("beside it")

	box.Kill()
	f.eventually(status(http.StatusServiceUnavailable), "no other one takes its place")
	harmless("away")
	f.Hub.Kill()
	f.startHub()
	f.idle(2)
	require.True(t, status(http.StatusServiceUnavailable)(), "nor at a hub that has not seen it")
	harmless("away")

	code, told := f.admin(http.MethodPost, "/comfyhub/forget?agent=zoe")
	require.Equal(t, http.StatusOK, code, string(told))
	f.eventually(func() bool { _, body := get("/"); return body == "evil" }, "the operator has decided")
	f.eventually(logged(f.Hub, "serving the web UI from"), "and is told")
}
