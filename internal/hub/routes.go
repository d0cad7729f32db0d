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
	segments []string // "*" matches any one segment
	methods  map[string]handler
	allow    string
}

// router finds the handler of a path. It is built once and then only read.
type router struct{ routes []route }

// handle adds a route; the pattern is a method, a blank and a path in which
// "*" stands for one segment.
func (t *router) handle(pattern string, h handler) {
	method, path, _ := strings.Cut(pattern, " ")
	segments := strings.Split(path, "/")[1:]
	for n := range t.routes {
		if slices.Equal(t.routes[n].segments, segments) {
			t.routes[n].methods[method] = h
			t.routes[n].allow = allowOf(t.routes[n].methods)
			return
		}
	}
	methods := map[string]handler{method: h}
	t.routes = append(t.routes, route{segments: segments, methods: methods, allow: allowOf(methods)})
}

// allowOf is the Allow header as aiohttp writes it: sorted, HEAD with GET.
func allowOf(methods map[string]handler) string {
	var list []string
	for m := range methods {
		list = append(list, m)
		if m == http.MethodGet {
			list = append(list, http.MethodHead)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// find returns the handler and the wildcards' values. Without a handler,
// allow is set when the path is a route that has no GET to fall back on.
func (t *router) find(method, escaped string) (h handler, path []string, allow string) {
	segments := strings.Split(escaped, "/")[1:]
	for _, rt := range t.routes {
		values, ok := rt.match(segments)
		if !ok {
			continue
		}
		m := method
		if m == http.MethodHead {
			m = http.MethodGet
		}
		if h := rt.methods[m]; h != nil {
			return h, values, ""
		}
		return nil, nil, rt.allow
	}
	return nil, nil, ""
}

func (rt *route) match(segments []string) ([]string, bool) {
	if len(segments) != len(rt.segments) {
		return nil, false
	}
	var values []string
	for n, want := range rt.segments {
		if want != "*" {
			if want != segments[n] {
				return nil, false
			}
			continue
		}
		value, err := url.PathUnescape(segments[n])
		if err != nil || segments[n] == "" {
			return nil, false
		}
		values = append(values, value)
	}
	return values, true
}

// bare strips the prefix under which every route of ComfyUI exists a second
// time.
func bare(escaped string) string {
	if rest, ok := strings.CutPrefix(escaped, "/api/"); ok {
		return "/" + rest
	}
	return escaped
}
