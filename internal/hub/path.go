package hub

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// This file is the only one of the package that looks at the URL of a request.
// Everything else goes by pathOf and queryOf, so that the hub reads a path once,
// and as its instances do.

// withPath is the request with its URL in the canonical form. Serve lets no
// other in, so that whoever reads the URL after it, here or in a library, reads
// what was decided on.
func withPath(r *http.Request, path aiohttp.Path) *http.Request {
	u := *r.URL
	path.Set(&u)
	out := *r
	out.URL = &u
	return &out
}

// pathOf is the path of a request that Serve has let in.
func pathOf(r *http.Request) aiohttp.Path {
	path, _ := aiohttp.ReadPath(r.URL) // the zero Path is no route
	return path
}

// queryOf are the parameters of a request.
func queryOf(r *http.Request) url.Values { return aiohttp.ParseQuery(r.URL.RawQuery) }

// rawQueryOf is the query as it was written.
func rawQueryOf(r *http.Request) string { return r.URL.RawQuery }

// withQuery is a request with another query.
func withQuery(r *http.Request, raw string) *http.Request {
	u := *r.URL
	u.RawQuery = raw
	out := *r
	out.URL = &u
	return &out
}

// forwardedQuery are the parameters that an instance may see.
func forwardedQuery(r *http.Request) url.Values {
	return aiohttp.ParseQuery(comfyui.ForwardedQuery(r.URL.RawQuery))
}

// writeNoPath answers a path that is none as aiohttp does: its static route
// finds nothing there, and knows GET and HEAD only.
func writeNoPath(w http.ResponseWriter, r *http.Request) {
	if !isRead(r) {
		writeNotAllowed(w, allowHeader(nil))
		return
	}
	writeText(w, http.StatusNotFound, "404: Not Found")
}

// isInternal reports whether a path belongs to the application that ComfyUI
// mounts at /internal, which has no static files.
func isInternal(path aiohttp.Path) bool {
	return path.String() == "/internal" || strings.HasPrefix(path.String(), "/internal/")
}

// climbs reports whether a name has a segment "..".
func climbs(name string) bool {
	return slices.Contains(strings.FieldsFunc(name, func(r rune) bool { return r == '/' || r == '\\' }), "..")
}
