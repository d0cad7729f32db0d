package api

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// This file is the only one of the package that looks at the URL of a request.
// Everything else goes by PathOf and QueryOf, so that the hub reads a path once,
// and as its instances do.

// WithPath is the request with its URL in the canonical form. Serve lets no
// other in, so that whoever reads the URL after it, here or in a library, reads
// what was decided on.
func WithPath(r *http.Request, path aiohttp.Path) *http.Request {
	u := *r.URL
	path.Set(&u)
	out := *r
	out.URL = &u
	return &out
}

// PathOf is the path of a request that Serve has let in.
func PathOf(r *http.Request) aiohttp.Path {
	path, _ := aiohttp.ReadPath(r.URL) // the zero Path is no route
	return path
}

// QueryOf are the parameters of a request.
func QueryOf(r *http.Request) url.Values { return aiohttp.ParseQuery(r.URL.RawQuery) }

// RawQueryOf is the query as it was written.
func RawQueryOf(r *http.Request) string { return r.URL.RawQuery }

// WithQuery is a request with another query.
func WithQuery(r *http.Request, raw string) *http.Request {
	u := *r.URL
	u.RawQuery = raw
	out := *r
	out.URL = &u
	return &out
}

// tokenParameter is where clients put a key that can set no header.
const tokenParameter = "token"

// withoutToken is a request whose URL has no token any more, wherever a handler or a
// library may look.
func withoutToken(r *http.Request) *http.Request {
	out := WithQuery(r, aiohttp.WithoutKeys(r.URL.RawQuery, tokenParameter))
	out.RequestURI = out.URL.RequestURI()
	return out
}

// ForwardedQuery are the parameters that an instance may see.
func ForwardedQuery(r *http.Request) url.Values {
	return aiohttp.ParseQuery(comfyui.ForwardedQuery(r.URL.RawQuery))
}

// writeNoPath answers a path that is none as aiohttp does: its static route
// finds nothing there, and knows GET and HEAD only.
func writeNoPath(w http.ResponseWriter, r *http.Request) {
	if !IsRead(r) {
		writeNotAllowed(w, allowHeader(nil))
		return
	}
	WriteText(w, http.StatusNotFound, "404: Not Found")
}

// nameless are routes that answer an unknown name with an empty object.
var nameless = []aiohttp.Pattern{
	aiohttp.ParsePattern("/history/*"), aiohttp.ParsePattern("/object_info/*"),
	aiohttp.ParsePattern("/api/history/*"), aiohttp.ParsePattern("/api/object_info/*"),
}

// readPath reads the path of a request. To aiohttp, escapes that are no UTF-8 are a part of
// the name, and so of one that nothing has. Where that is answered with an empty object, the
// path has a name in its place that nothing has either.
func readPath(r *http.Request) (aiohttp.Path, error) {
	path, err := aiohttp.ReadPath(r.URL)
	if !errors.Is(err, aiohttp.ErrEncoding) || !IsRead(r) {
		return path, err
	}
	named, refused := aiohttp.ReadPath(&url.URL{Path: strings.ToValidUTF8(r.URL.Path, "�")})
	matches := func(t aiohttp.Pattern) bool { _, ok := t.Match(named); return ok }
	if refused != nil || named.Climbs() || !slices.ContainsFunc(nameless, matches) {
		return path, err
	}
	return named, nil
}

// isInternal reports whether a path belongs to the application that ComfyUI
// mounts at /internal, which has no static files.
func isInternal(path aiohttp.Path) bool {
	return path.String() == "/internal" || strings.HasPrefix(path.String(), "/internal/")
}

// Climbs reports whether a name has a segment "..".
func Climbs(name string) bool {
	return slices.Contains(strings.FieldsFunc(name, func(r rune) bool { return r == '/' || r == '\\' }), "..")
}
