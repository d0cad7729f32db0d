package hub

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// handler answers one request; path holds the decoded values of the route's
// wildcards in order.
type handler func(w http.ResponseWriter, r *http.Request, a asker, path []string)

// route is one path of ComfyUI's surface. Its segments are matched against
// the escaped path, one raw segment each, as ComfyUI's router does:
// "workflows%2Fa.json" is one segment, and nothing is cleaned or redirected.
type route struct {
	// segments: "*" matches any one segment, "**" at the end all that follow.
	segments []string
	methods  map[string]handler
}

// router finds the handler of a path. It is built once and then only read.
type router struct{ routes []route }

// both adds a route of ComfyUI's main table, which exists bare and under /api.
func (t *router) both(pattern string, h handler) {
	method, path, _ := strings.Cut(pattern, " ")
	t.handle(pattern, h)
	t.handle(method+" /api"+path, h)
}

// handle adds a route; the pattern is a method, a blank and a path in which
// "*" stands for one segment and "**" at its end for one or more.
func (t *router) handle(pattern string, h handler) {
	method, path, _ := strings.Cut(pattern, " ")
	segments := strings.Split(path, "/")[1:]
	for n := range t.routes {
		if slices.Equal(t.routes[n].segments, segments) {
			t.routes[n].methods[method] = h
			return
		}
	}
	t.routes = append(t.routes, route{segments: segments, methods: map[string]handler{method: h}})
}

// find returns the handler and the wildcards' values. Routes are tried in the
// order in which they were added; one that matches without the method leaves
// the path to later ones. Without a handler, allowed are the methods that the
// path has; none means that it is no route.
func (t *router) find(method, escaped string) (h handler, path, allowed []string) {
	segments := strings.Split(escaped, "/")[1:]
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for n := range t.routes {
		values, ok := t.routes[n].match(segments)
		if !ok {
			continue
		}
		if h := t.routes[n].methods[method]; h != nil {
			return h, values, nil
		}
		for m := range t.routes[n].methods {
			allowed = append(allowed, m)
		}
	}
	return nil, nil, allowed
}

// allowHeader lists methods as aiohttp does: sorted, HEAD with GET. GET is
// always among them, because the static files are mounted at /.
func allowHeader(methods []string) string {
	list := append([]string{http.MethodGet, http.MethodHead}, methods...)
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ",")
}

func (rt *route) match(segments []string) (values []string, ok bool) {
	for n, want := range rt.segments {
		if n >= len(segments) {
			return nil, false
		}
		raw, rest := segments[n], want == "**"
		if want != "*" && !rest {
			if want != raw {
				return nil, false
			}
			continue
		}
		if rest {
			raw = strings.Join(segments[n:], "/")
		}
		value, err := url.PathUnescape(raw)
		if err != nil || raw == "" {
			return nil, false
		}
		values = append(values, value)
		if rest {
			return values, true
		}
	}
	return values, len(segments) == len(rt.segments)
}

// bare strips the prefix under which every route of ComfyUI exists a second
// time.
func bare(escaped string) string {
	if rest, ok := strings.CutPrefix(escaped, "/api/"); ok {
		return "/" + rest
	}
	return escaped
}

// isRead reports whether a request asks for a page or a file.
func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
