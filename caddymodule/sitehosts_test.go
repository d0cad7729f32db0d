package caddymodule_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A page on the web has its own name resolved to the hub's private address (DNS
// rebinding). It is of one origin with the hub then, so only its name tells.
func TestRebinding(t *testing.T) {
	s := newSite(t)
	other := freeAddress(t)
	_, port, err := net.SplitHostPort(other)
	require.NoError(t, err)
	site := func(words string) string {
		return "http://ui.example:" + port + " {\nbind 127.0.0.1\ncomfyhub\n}\nhttp://:" + port + " {\nbind 127.0.0.1\n" + words + "\n}\n"
	}
	s.start("")
	require.NoError(t, s.load("", site("comfyhub {\nhosts hub.corp.example\n}")))
	ask := func(address, host, origin string) (int, string) {
		t.Helper()
		status, body := 0, ""
		s.await(func() bool {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/queue", strings.NewReader(`{"clear": true}`))
			require.NoError(t, err)
			r.Host, r.Close = host, true
			if origin != "" {
				r.Header.Set("Origin", origin)
			}
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				return false // during a reload, see call
			}
			defer response.Body.Close()
			answer, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			status, body = response.StatusCode, string(answer)
			return true
		})
		return status, body
	}
	_, listening, err := net.SplitHostPort(s.api)
	require.NoError(t, err)
	for host, want := range map[string]int{
		s.api: 200, "localhost:" + listening: 200, "comfyhub:8188": 200, "hub.lan": 200, "10.9.8.7": 200,
		"evil.example": 403, "evil.example:" + listening: 403, "ui.example": 403,
	} {
		status, body := ask(s.api, host, "http://"+host)
		require.Equal(t, want, status, host)
		if want == http.StatusForbidden {
			require.Contains(t, body, "`hosts`", "the word that allows it is named")
		}
	}
	for host, want := range map[string]int{
		other: 200, "hub.corp.example": 200, "hub.corp.example:8188": 200, "ui.example:" + port: 200, "evil.example": 403, "www.corp.example": 403,
	} {
		status, _ := ask(other, host, "")
		require.Equal(t, want, status, host)
	}
	require.NoError(t, s.load("", site("comfyhub {\nhosts *\n}")))
	status, _ := ask(other, "evil.example", "http://evil.example")
	require.Equal(t, http.StatusOK, status)
}
