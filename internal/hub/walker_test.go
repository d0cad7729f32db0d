package hub_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/color"
	"maps"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/api/mount"
)

// The walk sends every request in the hub's own route table, with every method and many spellings
// of the path, as a tenant that tries to reach another tenant's things.
const (
	// owner is the tenant under attack. All its names begin with it.
	owner = "victim"
	// nobody is as long as owner and sorts the same way, so that listings of the two
	// differ in nothing else. No name of a thing begins with it.
	nobody = "victor"
	// content is inside everything that the owner has.
	content = "s3cr3t-content"
)

// walker makes the requests of one pass.
type walker struct {
	rooms  mount.API
	tenant string
	// who is how the names that the requests ask for begin.
	who string
	// picture is the PNG of a pixel; the first form makes it.
	picture string
	// bound returns how long the requests of a route may take, 0 for no limit. It may be nil.
	bound func(route string) time.Duration
	// oneIn says that one in so many names and spellings is tried, different ones at each route; 0
	// and 1 mean all.
	oneIn int
	// plain means that all names are tried in one spelling.
	plain bool
	// routes are how many it has walked.
	routes int
	// answers are what came back, in the order of the requests.
	answers []answer
}

// answer is one answer, with the request it belongs to.
type answer struct {
	// by is the tenant that asked.
	by             string
	route, request string
	status         int
	header         http.Header
	body           string
}

// inTheGate returns oneIn, or 1 with COMFYHUB_SLOW, so that everything is tried.
func inTheGate(oneIn int) int {
	if os.Getenv("COMFYHUB_SLOW") != "" {
		return 1
	}
	return oneIn
}

// names returns the names of all the owner's things that a request may use.
func (w *walker) names() []string {
	return []string{
		w.who + "-ended", w.who + "-running", w.who + "-waiting", w.who + ".png", w.who + "_00001_.png",
		w.who + ".json", w.who + ".setting", w.who + "-held", w.who,
		outputOf(w.who),
	}
}

// outputOf is the id of a tenant's picture in the Comfy API v2.
func outputOf(who string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(`["` + who + `-ended","output","","` + who + `_00001_.png"]`))
}

// spelling is one way to write a path.
type spelling func(path string) string

// spellings are the ways in which servers and proxies read a path differently.
func spellings() map[string]spelling {
	escape := func(format string) spelling {
		return func(path string) string {
			var out strings.Builder
			for _, c := range []byte(path) {
				if c == '/' {
					out.WriteByte(c)
					continue
				}
				fmt.Fprintf(&out, format, c)
			}
			return out.String()
		}
	}
	return map[string]spelling{
		"plain":          func(path string) string { return path },
		"all escaped":    escape("%%%02x"),
		"upper escapes":  escape("%%%02X"),
		"twice escaped":  escape("%%25%02x"),
		"first escaped":  func(path string) string { return fmt.Sprintf("/%%%02x%s", path[1], path[2:]) },
		"api":            func(path string) string { return "/api" + path },
		"escaped api":    func(path string) string { return "/%61pi" + path },
		"two slashes":    func(path string) string { return "/" + path },
		"api, slashes":   func(path string) string { return "/api/" + path },
		"slashes within": func(path string) string { return "/" + strings.ReplaceAll(path[1:], "/", "//") },
		"slash after":    func(path string) string { return path + "/" },
		"upper case":     strings.ToUpper,
		"capital":        func(path string) string { return "/" + strings.ToUpper(path[1:2]) + path[2:] },
		"parameter":      func(path string) string { return path + ";x=1" },
		"nul":            func(path string) string { return path + "%00" },
		"question":       func(path string) string { return path + "%3fx" },
		"dot":            func(path string) string { return "/." + path },
		"dots":           func(path string) string { return "/x/.." + path },
		"escaped dots":   func(path string) string { return "/x/%2e%2e" + path },
		"escaped slash":  func(path string) string { return "/" + strings.ReplaceAll(path[1:], "/", "%2f") },
		"backslash":      func(path string) string { return `/x\..` + path },
		"prefix":         func(path string) string { return "/hub" + path },
		"blank":          func(path string) string { return path + "%20" },
		"line feed":      func(path string) string { return path + "%0a" },
	}
}

// walk sends the requests of the whole table with some methods.
func (w *walker) walk(t *testing.T, methods ...string) {
	t.Helper()
	for _, table := range w.rooms.Routers() {
		for pattern := range table.All() {
			w.route(t, pattern.String(), methods)
		}
	}
}

// route sends the requests of one route: each name as the value of each wildcard,
// in the query and in the body.
func (w *walker) route(t *testing.T, pattern string, methods []string) {
	t.Helper()
	all := spellings()
	w.routes++
	leftOut := func(n int) bool { return w.oneIn > 1 && (n+w.routes)%w.oneIn != 0 }
	for i, name := range w.names() {
		path := strings.ReplaceAll(strings.ReplaceAll(pattern, "**", name), "*", name)
		for k, as := range slices.Sorted(maps.Keys(all)) {
			switch {
			case as == "plain" && leftOut(i), as != "plain" && leftOut(k):
				continue
			case (i > 0 || w.plain) && as != "plain":
				continue // the spelling affects the route, not the name
			}
			for _, method := range methods {
				if as != "plain" && method != http.MethodGet && method != http.MethodPost && method != http.MethodDelete {
					continue // the method does not affect how a path is read
				}
				w.request(t, pattern, method, all[as](path)+"?"+w.query(name), "", "")
				if as == "plain" {
					w.request(t, pattern, method, path, "", "") // parameters may hide things too
				}
				if method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions {
					continue
				}
				w.request(t, pattern, method, all[as](path), "application/json", w.body(name))
				if as == "plain" {
					w.request(t, pattern, method, all[as](path), "application/json", `{"clear": true}`)
					kind, form := w.form(t, name)
					w.request(t, pattern, method, all[as](path)+"?overwrite=true", kind, form)
				}
			}
		}
	}
}

// query asks for a name in every parameter that a route may read.
func (w *walker) query(name string) string {
	return url.Values{
		"clientId": {w.who + "-client"}, "client_id": {w.who + "-client"}, "filename": {name}, "subfolder": {""},
		"type": {"output"}, "dir": {w.who}, "path": {w.who}, "recurse": {"true"}, "full_info": {"true"},
		"prompt_id": {name}, "id": {name}, "tenant": {w.who}, "user": {w.who}, "status": {"completed"},
		"workflow_id": {w.who}, "exp": {"99999999999"}, "sig": {"AAAA"}, "token": {w.who},
	}.Encode()
}

// body puts a name into every member that a route may read.
func (w *walker) body(name string) string {
	body, _ := json.Marshal(map[string]any{
		"delete": w.names(), "prompt_id": name, "id_task": name, "prompt_ids": w.names(), "job_ids": w.names(), "ids": w.names(), "id": name,
		"client_id": w.who + "-client", "clientId": w.who + "-client", "enabled": true, "filename": name,
		"subfolder": "", "type": "output", "username": w.who, "tenant": w.who, "unload_models": true, "free_memory": true,
		w.who + ".setting": "changed", "extra_data": map[string]any{"client_id": w.who + "-client"},
	})
	return string(body)
}

// form uploads a file over a name.
func (w *walker) form(t *testing.T, name string) (kind, body string) {
	t.Helper()
	var out bytes.Buffer
	form := multipart.NewWriter(&out)
	require.NoError(t, form.SetBoundary("boundary"))
	part := must(form.CreateFormFile("image", name))(t)
	if w.picture == "" {
		w.picture = pixel(t, color.Gray{99})
	}
	must(part.Write([]byte(w.picture)))(t)
	for key, value := range map[string]string{"overwrite": "true"} {
		require.NoError(t, form.WriteField(key, value))
	}
	require.NoError(t, form.WriteField("original_ref", fmt.Sprintf(`{"filename": %q, "type": "output", "subfolder": ""}`, name)))
	require.NoError(t, form.Close())
	return form.FormDataContentType(), out.String()
}

// proxyHeaders say that a request comes from the hub's own machine through a proxy. No route
// believes them.
const proxyHeaders = "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: 127.0.0.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-User: root\r\n" +
	"Forwarded: for=127.0.0.1;host=127.0.0.1\r\nVia: 1.1 proxy\r\nX-Real-IP: 127.0.0.1\r\nX-Original-URL: /hub/stats\r\nRemote-User: root\r\n"

// request sends one request, byte for byte as a client would.
func (w *walker) request(t *testing.T, route, method, target, kind, body string) {
	t.Helper()
	raw := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: hub.test\r\nUser-Agent: walk\r\nX-ComfyHub-Tenant: %s\r\n"+proxyHeaders+"Comfy-User: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		method, target, w.who, w.who, kind, len(body), body)
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		return // the web server refuses it before the hub sees it
	}
	bound := time.Duration(0)
	switch {
	case w.bound != nil:
		bound = w.bound(route)
	case strings.Contains(route, "/wait/"), strings.Contains(route, "/events"):
		bound = 100 * time.Millisecond // the owner's jobs do not end
	}
	if bound > 0 {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		r = r.WithContext(ctx)
	}
	got := httptest.NewRecorder()
	// Each has its own address: a network that has shown many wrong tokens is told to wait.
	n := len(w.answers)
	w.rooms.Serve(got, r, api.Visitor{Tenant: w.tenant, Named: w.who, Forwarded: true, IP: fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255)})
	line := method + " " + target
	if body != "" && len(body) < 1000 {
		line += " " + body
	}
	w.answers = append(w.answers, answer{w.tenant, route, line, got.Code, got.Result().Header, got.Body.String()})
}

// varying matches what differs between two equal answers: the trends of the fleet, which grow
// while the walk lasts, numbers, times, ids.
var varying = regexp.MustCompile(`"buckets": \[[^\]]*\]|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,}|[0-9][0-9.e+:]*`)

// alike returns an answer without its varying parts and without the names it repeats.
func (a answer) alike() string { return varying.ReplaceAllString(a.nameless(), "#") }

// isLike reports whether two answers are alike. For most it need not look for what varies.
func (a answer) isLike(b answer) bool { return a.nameless() == b.nameless() || a.alike() == b.alike() }

// nameless returns an answer without the names it repeats.
func (a answer) nameless() string {
	header := a.header.Clone()
	for _, name := range []string{"Date", "Etag", "Last-Modified", "Content-Length"} {
		header.Del(name)
	}
	// A dashboard says who is looking at it.
	text := fmt.Sprint(a.status, header, strings.ReplaceAll(a.body, `"tenant": "`+a.by+`"`, `"tenant": "WHO ASKS"`))
	for _, who := range []string{owner, nobody} {
		for _, spelled := range []string{outputOf(who), strings.ToUpper(outputOf(who)), who, strings.ToUpper(who), strings.ToUpper(who[:1]) + who[1:], fmt.Sprintf("%x", who), fmt.Sprintf("%X", who)} {
			text = strings.ReplaceAll(text, spelled, "WHO")
		}
	}
	return text
}

// has reports whether an answer shows a text in its body or in a header.
func (a answer) has(text string) bool {
	return strings.Contains(a.body, text) || strings.Contains(fmt.Sprint(a.header), text)
}
