package mount

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/aiohttp/aiohttptest"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// model is aiohttp's resolver, written from its source. Resources are indexed by the fixed
// beginning of their path. A path is looked up whole, then without its last segment, and so on, and
// the resources under one index are tried in order. A parameter is [^{}/]+, or .* where it takes
// the rest. It shares no code with the router that it is compared to.
type model struct {
	index map[string][]*resource
}

type resource struct {
	name    string
	match   *regexp.Regexp
	methods []string
}

// newModel contains the hub's own table, in the same order.
func newModel(t *api.Router) *model {
	m := &model{index: map[string][]*resource{}}
	for pattern, methods := range t.All() {
		name := pattern.String()
		fixed, _, dynamic := strings.Cut(name, "*")
		expression := regexp.QuoteMeta(name)
		expression = strings.ReplaceAll(expression, `\*\*`, "(.*)")
		expression = strings.ReplaceAll(expression, `\*`, "([^{}/]+)")
		res := &resource{name: name, match: regexp.MustCompile("^" + expression + "$")}
		for _, method := range methods {
			res.methods = append(res.methods, method)
			if method == http.MethodGet {
				res.methods = append(res.methods, http.MethodHead)
			}
		}
		key := name
		if dynamic {
			key = fixed[:strings.LastIndex(fixed, "/")]
		}
		if key = strings.TrimRight(key, "/"); key == "" {
			key = "/"
		}
		m.index[key] = append(m.index[key], res)
	}
	return m
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// safe is yarl's path_safe for a path without broken escapes.
func safe(raw string) string {
	return escape.ReplaceAllStringFunc(raw, func(e string) string {
		if e = strings.ToUpper(e); e == "%2F" || e == "%25" {
			return e
		}
		plain, _ := url.PathUnescape(e)
		return plain
	})
}

func (m *model) resolve(method, path string) (name string, values, allowed []string) {
	for part := path; part != ""; {
		for _, res := range m.index[part] {
			found := res.match.FindStringSubmatch(path)
			if found == nil {
				continue
			}
			if !slices.Contains(res.methods, method) {
				allowed = append(allowed, res.methods...)
				continue
			}
			for _, v := range found[1:] {
				values = append(values, strings.ReplaceAll(strings.ReplaceAll(v, "%2F", "/"), "%25", "%"))
			}
			return res.name, values, nil
		}
		if part == "/" {
			break
		}
		if part = part[:strings.LastIndex(part, "/")]; part == "" {
			part = "/"
		}
	}
	slices.Sort(allowed)
	return "", nil, slices.Compact(allowed)
}

// FuzzRouter compares the hub's router with the model. If the hub finds no route
// and passes the request on, aiohttp must find none either.
func FuzzRouter(f *testing.F) {
	for _, row := range aiohttptest.Rows(f) {
		f.Add(row.Method, row.Target)
	}
	for _, path := range []string{"/%75pload/mas%6b", "/hub/file%73/x", "/api/assets/hash/blake3:0", "/history/{x}", "/api/etn/image/a%2Fb"} {
		f.Add(http.MethodHead, path)
		f.Add(http.MethodDelete, path)
	}
	server := New(hub.New(config.Identity{}))
	named := &api.Router{} // the hub's table with handlers that report their name
	hit := ""
	for _, table := range server.Routers() {
		for pattern, methods := range table.All() {
			for _, method := range methods {
				named.Handle(method+" "+pattern.String(), func(http.ResponseWriter, *http.Request, api.Requester, []string) { hit = pattern.String() })
			}
		}
	}
	aio := newModel(named)
	f.Fuzz(func(t *testing.T, method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return // net/http's server answers 400
		}
		p, err := aiohttp.ReadPath(u)
		if err != nil {
			return // refused, so passed on to nobody
		}
		raw, _, _ := strings.Cut(target, "?")
		if _, rest, absolute := strings.Cut(raw, "://"); absolute && !strings.HasPrefix(raw, "/") {
			raw = rest[strings.Index(rest, "/"):]
		}
		wantName, wantValues, wantAllowed := aio.resolve(method, safe(raw))
		handler, values, allowed := named.Find(method, p)
		hit = ""
		if handler != nil {
			handler(nil, nil, api.Requester{}, nil)
		}
		require.Equal(t, wantName, hit, target)
		require.Equal(t, wantValues, values, target)
		if slices.Contains(allowed, http.MethodGet) {
			allowed = append(allowed, http.MethodHead)
		}
		slices.Sort(allowed)
		require.Equal(t, wantAllowed, slices.Compact(allowed), target)
		if wantName != "" {
			require.True(t, named.Resembles(p), "a route of the hub is private in any case: %s", target)
		}
	})
}
