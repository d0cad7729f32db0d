package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBrowserCookie(t *testing.T) {
	t.Parallel()
	const known = "0123456789abcdef0123456789abcdef"
	const page = "text/html,*/*"
	for name, c := range map[string]struct {
		header string // one a line
		status int
		kind   string
		secure bool
		want   string // "" for none, "new" or a value
	}{
		"a page":                   {header: "Accept: " + page, want: "new"},
		"a page over TLS":          {header: "Accept: " + page, secure: true, want: "new"},
		"a page, known":            {header: "Accept: " + page + "\nCookie: comfyhub_browser=" + known, want: known},
		"a page, cookie of others": {header: "Accept: " + page + "\nCookie: comfyhub_browser=x", want: "new"},
		"a page, two cookies":      {header: "Accept: " + page + "\nCookie: comfyhub_browser=" + known + "; comfyhub_browser=" + strings.Repeat("f", 32), want: "new"},
		"a page that is not there": {header: "Accept: " + page, status: 404},
		"a picture":                {header: "Accept: " + page, kind: "image/png"},
		"a call":                   {header: "Accept: application/json"},
		"a script":                 {header: "Accept: " + page + "\nUser-Agent: python-requests/2.32"},
		"nobody":                   {header: "User-Agent: curl/8"},
		"a frame of another site":  {header: "Accept: " + page + "\nSec-Fetch-Site: cross-site"},
		"a socket":                 {header: "Upgrade: websocket\nOrigin: http://hub.lan", want: "new"},
		"a socket, known":          {header: "Upgrade: websocket\nOrigin: http://hub.lan\nCookie: comfyhub_browser=" + known},
		"a socket of a script":     {header: "Upgrade: websocket\nOrigin: http://hub.lan\nUser-Agent: Python/3.13 websockets/15.0"},
		"a socket without Origin":  {header: "Upgrade: websocket"},
		"a socket of another site": {header: "Upgrade: websocket\nOrigin: http://ui.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodGet, "http://hub.lan/", nil)
			r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
			for line := range strings.Lines(c.header) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				r.Header.Set(key, value)
			}
			answer := httptest.NewRecorder()
			v := Visitor{IP: "10.0.0.1", Secure: c.secure}
			a := RequesterOf(r, v)
			w := greet(answer, r, v, &a)
			w.Header().Set("Cache-Control", "public, max-age=3600")
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			if c.kind != "" {
				w.Header().Set("Content-Type", c.kind)
			}
			if c.status == 0 {
				c.status = http.StatusOK
			}
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte("x"))

			cookies := answer.Result().Cookies()
			if c.want == "" {
				require.Empty(t, cookies)
				require.Equal(t, "public, max-age=3600", answer.Header().Get("Cache-Control"))
				return
			}
			require.Len(t, cookies, 1)
			cookie := cookies[0]
			require.Regexp(t, "^[0-9a-f]{32}$", cookie.Value)
			if c.want != "new" {
				require.Equal(t, c.want, cookie.Value)
			} else {
				require.NotEqual(t, known, cookie.Value)
			}
			require.Equal(t, http.SameSiteLaxMode, cookie.SameSite)
			require.True(t, cookie.HttpOnly)
			require.Equal(t, c.secure, cookie.Secure)
			require.Equal(t, "/", cookie.Path)
			if r.Header.Get("Upgrade") == "" {
				require.Equal(t, "private, no-cache", answer.Header().Get("Cache-Control"), "no shared cache keeps the page")
				return
			}
			require.NotEmpty(t, a.browser, "it counts for the socket already")
		})
	}
}
