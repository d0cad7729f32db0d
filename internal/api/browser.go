package api

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// CookieName is the cookie that tells one browser from another behind the
	// same address. It is no login and opens nothing: it only keeps one
	// person's "clear" from another's prompts.
	CookieName = "comfyhub_browser"
	cookieLife = 365 * 24 * time.Hour
	cookieSize = 16 // bytes of chance
)

var cookieValue = regexp.MustCompile(`^[0-9a-f]{32}$`)

// browserCookie is the value of a request's cookie, "" for none. Of several
// none counts: a page of a sibling subdomain may have set one of them.
func browserCookie(r *http.Request) string {
	cookies := slices.DeleteFunc(r.CookiesNamed(CookieName), func(c *http.Cookie) bool { return !cookieValue.MatchString(c.Value) })
	if len(cookies) != 1 {
		return ""
	}
	return cookies[0].Value
}

// greet gives a browser its cookie: with a page, and with a socket if it came
// without one, for a tab may be older than the cookie. Other programs are given
// none.
func greet(w http.ResponseWriter, r *http.Request, v Visitor, a *Requester) http.ResponseWriter {
	if r.Method != http.MethodGet || !strings.HasPrefix(r.UserAgent(), "Mozilla/") {
		return w
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		return w // a page of another site, which is let in by cors
	}
	value := browserCookie(r)
	cookie := &http.Cookie{ //nolint:gosec // Secure where the browser speaks TLS: plain HTTP must work, too
		Name: CookieName, Value: value, Path: "/", MaxAge: int(cookieLife / time.Second),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: v.Secure,
	}
	if value == "" {
		cookie.Value = newCookie()
	}
	switch {
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		if value == "" && ownOrigin(r, v) {
			http.SetCookie(w, cookie)
			a.browser, a.fresh = shortHash(cookie.Value), true
		}
	case strings.Contains(r.Header.Get("Accept"), "text/html"):
		return withCookie(w, cookie)
	}
	return w
}

func newCookie() string {
	b := make([]byte, cookieSize)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return hex.EncodeToString(b)
}

// withCookie adds the cookie to an answer that turns out to be a page.
func withCookie(w http.ResponseWriter, cookie *http.Cookie) http.ResponseWriter {
	return &LateWriter{ResponseWriter: w, Late: func(header http.Header, status int) {
		if status != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/html") {
			return
		}
		header.Add("Set-Cookie", cookie.String())
		if control := header.Get("Cache-Control"); !strings.Contains(control, "no-store") {
			// A cache that many share must not give one browser's to another.
			header.Set("Cache-Control", "private, no-cache")
		}
	}}
}
