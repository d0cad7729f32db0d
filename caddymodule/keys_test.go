package caddymodule_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// guarded starts a site that needs keys, with an access log and lines before the hub's.
func (s *site) guarded(before, block string) (accessLog string) {
	s.t.Helper()
	_, port, err := net.SplitHostPort(s.api)
	require.NoError(s.t, err)
	accessLog = filepath.Join(s.t.TempDir(), "access.log")
	text := fmt.Sprintf(`{
	admin %s
	persist_config off
	log {
		output file %s
		level DEBUG
	}
	comfyhub {
		data %s
		gossip {
			bind %s
		}
		instance %s
	}
}
http://:%s {
	bind 127.0.0.1
	log
	%s
	comfyhub {
		%s
	}
}
`, s.admin, accessLog, s.data, s.gossip, s.instance, port, before, block)
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
	require.NoError(s.t, err)
	require.NoError(s.t, caddy.Load(config, true))
	s.ready()
	return accessLog
}

// ws opens a socket, and returns the status of the answer.
func (s *site) ws(query string, header http.Header) int {
	s.t.Helper()
	conn, resp, err := websocket.Dial(s.t.Context(), "http://"+s.api+"/ws?clientId=a"+query, &websocket.DialOptions{HTTPHeader: header})
	if err == nil {
		conn.CloseNow()
	}
	require.NotNil(s.t, resp, err)
	return resp.StatusCode
}

// as sends a GET with headers, and returns the status of the answer.
func (s *site) as(path string, header http.Header) int {
	s.t.Helper()
	r := must.Get(http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.api+path, nil))(s.t)
	r.Header, r.Close = header, true
	resp := must.Get(http.DefaultClient.Do(r))(s.t)
	resp.Body.Close()
	return resp.StatusCode
}

func bearer(secret string) http.Header { return http.Header{"Authorization": {"Bearer " + secret}} }

// Keys are made, listed and revoked by the command; no log line has a key in it, wherever
// it was shown.
func TestKeysOfASite(t *testing.T) {
	s := newSite(t)
	logFile := s.guarded("", "keys required")
	at := []string{"--address", s.admin}
	run := func(code int, args ...string) (out, errors string) {
		t.Helper()
		got, out, errors := s.command(append(at, args...)...)
		require.Equal(t, code, got, out+errors)
		return out, errors
	}
	out, told := run(0, "key", "add", "ada", "--weight", "2", "--running", "4", "--gpu-seconds", "36000/day", "--expires", "90d", "--scope", "submit,read")
	secret := strings.TrimSpace(out)
	require.True(t, strings.HasPrefix(secret, "comfyhub_"), out)
	require.Contains(t, told, "not shown again")
	require.NotContains(t, told, secret)
	_, told = run(1, "key", "add", "ada")
	require.Contains(t, told, "revoke it first")
	for _, wrong := range [][]string{
		{"--weight", "none"}, {"--running", "0"}, {"--gpu-seconds", "5/week"}, {"--expires", "soon"}, {"--scope", "all"}, {"--scope", ""}, {"--tenant", "default"},
	} {
		run(1, append([]string{"key", "add", "bob"}, wrong...)...)
	}
	run(2, "key", "add")
	run(2, "key", "list", "all")
	run(2, "key", "make")
	run(1, "key", "revoke", "nobody")

	require.Equal(t, http.StatusUnauthorized, s.as("/queue", nil))
	require.Equal(t, http.StatusOK, s.as("/queue", bearer(secret)))
	require.Equal(t, http.StatusOK, s.as("/queue?token="+secret, nil))
	require.Equal(t, http.StatusOK, s.as("/history", http.Header{"X-Api-Key": {secret}}))
	require.Equal(t, http.StatusBadRequest, s.as("/history", http.Header{"X-Api-Key": {secret, secret + "x"}}))
	require.Equal(t, http.StatusSwitchingProtocols, s.ws("", bearer(secret)))
	require.Equal(t, http.StatusSwitchingProtocols, s.ws("", http.Header{"X-Api-Key": {secret}}))
	require.Equal(t, http.StatusSwitchingProtocols, s.ws("&token="+secret, nil))
	require.Equal(t, http.StatusUnauthorized, s.ws("", nil))
	require.Equal(t, http.StatusUnauthorized, s.ws("&token="+secret+"x", nil))
	s.await(func() bool { out, _ = run(0, "key", "list"); return strings.Contains(out, "s ago") })
	require.Regexp(t, `ada +ada +submit,read +weight 2, running 4, gpu-seconds 36000/day +in (89|90)d +\d+s ago`, out)
	require.NotContains(t, out, secret[9:20])
	out, _ = run(0, "key", "list", "--json")
	require.Contains(t, out, `"gpu_seconds":36000`)

	run(0, "key", "revoke", "ada")
	require.Equal(t, http.StatusUnauthorized, s.as("/queue", bearer(secret)))
	require.Equal(t, http.StatusUnauthorized, s.ws("&token="+secret, nil))
	s.await(func() bool {
		logged := must.Get(os.ReadFile(logFile))(t)
		require.NotContains(t, string(logged), secret[9:30])
		return strings.Contains(string(logged), `"uri":"/queue"`) && strings.Contains(string(logged), "out of the access log") && strings.Contains(string(logged), `"path":"/history"`)
	})
}

// Browsers log in with forward_auth, programs with keys, at the same site. Nobody comes in
// as somebody whom the login did not name.
func TestKeysBesideForwardAuth(t *testing.T) {
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cookie, err := r.Cookie("session"); err != nil || cookie.Value != "ann" {
			http.Redirect(w, r, "https://login.example/", http.StatusFound)
			return
		}
		w.Header().Set("Remote-User", "ann")
	}))
	t.Cleanup(login.Close)
	s := newSite(t)
	s.guarded(fmt.Sprintf(`
	@people {
		not header Authorization "Bearer comfyhub_*"
		not header X-API-Key comfyhub_*
		not expression {query.token}.startsWith('comfyhub_')
	}
	route {
		request_header -Remote-User
		forward_auth @people %s {
			uri /check
			copy_headers Remote-User
		}
		comfyhub {
			tenant {http.request.header.Remote-User}
			keys required
		}
	}`, strings.TrimPrefix(login.URL, "http://")), "keys required")
	_, out, _ := s.command("--address", s.admin, "key", "add", "bot")
	secret := strings.TrimSpace(out)
	session := http.Header{"Cookie": {"session=ann"}}
	http.DefaultClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(func() { http.DefaultClient.CheckRedirect = nil })

	require.Equal(t, http.StatusOK, s.as("/queue", session))
	require.Equal(t, http.StatusSwitchingProtocols, s.ws("", session))
	require.Equal(t, http.StatusOK, s.as("/queue", bearer(secret)))
	require.Equal(t, http.StatusOK, s.as("/queue", http.Header{"X-Api-Key": {secret}}))
	require.Equal(t, http.StatusSwitchingProtocols, s.ws("", bearer(secret)))
	require.Equal(t, http.StatusSwitchingProtocols, s.ws("&token="+secret, nil))

	require.Equal(t, http.StatusFound, s.as("/queue", nil))
	require.Equal(t, http.StatusFound, s.ws("", nil))
	require.Equal(t, http.StatusFound, s.as("/queue", http.Header{"Remote-User": {"ann"}}))
	require.Equal(t, http.StatusFound, s.as("/queue", http.Header{"Authorization": {"Basic YTpi"}}))
	for _, header := range []http.Header{
		bearer("comfyhub_x"), {"X-Api-Key": {"comfyhub_x"}, "Remote-User": {"ann"}}, {"Authorization": {"Bearer comfyhub_x"}, "Remote-User": {"ann"}}, {"Authorization": {"Bearer comfyhub_x"}, "X-Comfyhub-Tenant": {"ann"}},
	} {
		require.Equal(t, http.StatusUnauthorized, s.as("/queue", header))
		require.Equal(t, http.StatusUnauthorized, s.ws("", header))
	}
	require.Equal(t, http.StatusUnauthorized, s.as("/queue?token=comfyhub_x", http.Header{"Remote-User": {"ann"}}))
}

// Commands at the admin endpoint are in the audit log, under its own name and without secrets.
func TestAuditOfTheAdminEndpoint(t *testing.T) {
	s := newSite(t)
	logFile := s.guarded("", "keys required")
	_, out, _ := s.command("--address", s.admin, "key", "add", "ada", "--scope", "read")
	_, _, _ = s.command("--address", s.admin, "pause", "nobody")
	s.await(func() bool {
		logged := must.Get(os.ReadFile(logFile))(t)
		require.NotContains(t, string(logged), strings.TrimSpace(out)[9:30])
		var audited []string
		for line := range strings.Lines(string(logged)) {
			if strings.Contains(line, `"logger":"comfyhub.audit"`) {
				audited = append(audited, line)
			}
		}
		if len(audited) < 2 {
			return false
		}
		require.Len(t, audited, 2)
		require.Contains(t, audited[0], `"action":"POST /comfyhub/keys","of_name":"ada","of_scope":"read","result":"ok"`)
		require.Contains(t, audited[1], `"action":"POST /comfyhub/pause","of_instance":"nobody","result":"no instance is called \"nobody\""`)
		return true
	})
}
