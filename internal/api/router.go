package api

import (
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
)

// Handler answers one request; path holds the decoded values of the route's
// wildcards in order.
type Handler func(w http.ResponseWriter, r *http.Request, a Requester, path []string)

// route is one path of ComfyUI's surface. It is matched against the canonical
// path, as ComfyUI's router does: "workflows%2Fa.json" is one segment, and
// nothing is cleaned or redirected.
type route struct {
	pattern aiohttp.Pattern
	methods map[string]found
}

// found is a handler, and what is special about its route.
type found struct {
	Handler

	// open says that the handler lets callers in by itself.
	open bool
	// asset says that the route has a file of the hub's own page, which is no secret.
	asset bool
	// reads says that the route changes nothing, whatever its method is.
	reads bool
	// audited says that the request is written down, pattern as what.
	audited bool
	pattern string
}

// Router finds the handler of a path. It is built once and then only read.
type Router struct{ routes []route }

// Both adds a route of ComfyUI's main table, which exists bare and under /api.
func (t *Router) Both(pattern string, h Handler) {
	method, path, _ := strings.Cut(pattern, " ")
	t.Handle(pattern, h)
	t.Handle(method+" /api"+path, h)
}

// Handle adds a route; the text is a method, a blank and a path in which
// "*" stands for one segment and "**" at its end for all that follow.
func (t *Router) Handle(text string, h Handler) {
	t.change(text, func(f *found) { f.Handler = h })
}

// HandleOpen adds a route whose handler lets callers in by itself, by what only they can
// have, such as the token of a machine: it needs neither a login nor a key.
func (t *Router) HandleOpen(text string, h Handler) {
	t.change(text, func(f *found) { f.Handler, f.open = h, true })
}

// HandleAsset adds a route that answers with a file of the hub's own page, which is no secret.
func (t *Router) HandleAsset(text string, h Handler) {
	t.change(text, func(f *found) { f.Handler, f.asset = h, true })
}

// HandleReading adds a route that changes nothing, though its method is none of those that
// only read. All others with such a method count as changes.
func (t *Router) HandleReading(text string, h Handler) {
	t.change(text, func(f *found) { f.Handler, f.reads = h, true })
}

// Audit has requests for routes, which are there already, written to the audit log.
func (t *Router) Audit(texts ...string) {
	for _, text := range texts {
		t.change(text, func(f *found) { f.audited = true })
	}
}

// change changes what is known of a method of a path, and adds the path if it is new.
func (t *Router) change(text string, change func(*found)) {
	method, path, _ := strings.Cut(text, " ")
	pattern := aiohttp.ParsePattern(path)
	at := slices.IndexFunc(t.routes, func(rt route) bool { return rt.pattern.Equal(pattern) })
	if at < 0 {
		at = len(t.routes)
		t.routes = append(t.routes, route{pattern: pattern, methods: map[string]found{}})
	}
	f := t.routes[at].methods[method]
	f.pattern = t.routes[at].pattern.String()
	change(&f)
	t.routes[at].methods[method] = f
}

// All are the routes in the order in which they were added, each with its
// methods.
func (t *Router) All() iter.Seq2[aiohttp.Pattern, []string] {
	return func(yield func(aiohttp.Pattern, []string) bool) {
		for _, rt := range t.routes {
			if !yield(rt.pattern, slices.Sorted(maps.Keys(rt.methods))) {
				return
			}
		}
	}
}

// Find returns the handler and the wildcards' values. Routes are tried in the
// order in which they were added; one that matches without the method leaves
// the path to later ones. Without a handler, allowed are the methods that the
// path has; none means that it is no route.
func (t *Router) Find(method string, p aiohttp.Path) (h Handler, path, allowed []string) {
	found, path, allowed := t.find(method, p)
	return found.Handler, path, allowed
}

func (t *Router) find(method string, p aiohttp.Path) (f found, path, allowed []string) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for n := range t.routes {
		values, ok := t.routes[n].pattern.Match(p)
		if !ok {
			continue
		}
		if f := t.routes[n].methods[method]; f.Handler != nil {
			return f, values, nil
		}
		for m := range t.routes[n].methods {
			allowed = append(allowed, m)
		}
	}
	return found{}, nil, allowed
}

// allowHeader lists methods as aiohttp does: sorted, HEAD with GET. GET is
// always among them, because the static files are mounted at /.
func allowHeader(methods []string) string {
	return listed(append([]string{http.MethodGet}, methods...))
}

// listed are the methods of a route below /internal, where no static files are.
func listed(methods []string) string {
	if slices.Contains(methods, http.MethodGet) {
		methods = append([]string{http.MethodHead}, methods...)
	}
	slices.Sort(methods)
	return strings.Join(slices.Compact(methods), ",")
}

// Resembles reports whether a path is one of the router's for somebody who reads
// paths more loosely than aiohttp.
func (t *Router) Resembles(p aiohttp.Path) bool {
	loose := p.Loose()
	return slices.ContainsFunc(t.routes, func(rt route) bool { return rt.pattern.Resembles(loose) })
}

// Pattern is the route of a path, for the log: the path itself may name a file.
func (t *Router) Pattern(p aiohttp.Path) string {
	for _, rt := range t.routes {
		if _, ok := rt.pattern.Match(p); ok {
			return rt.pattern.String()
		}
	}
	return "none"
}

// IsRead reports whether a request asks for a page or a file.
func IsRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
