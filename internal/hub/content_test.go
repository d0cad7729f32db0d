package hub_test

import (
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// mimetypes are the endings that Python's mimetypes knows on Debian, each with its type.
//
//go:embed testdata/mimetypes.txt
var mimetypes string

// evil runs as HTML, as XHTML and as SVG.
const evil = `<svg xmlns="http://www.w3.org/2000/svg"><script>fetch("/hub/pause", {method: "POST"})</script></svg>`

// vendor are the words by which vendors' types differ from each other, and in nothing else.
var vendor = regexp.MustCompile(`/vnd\.[^+]*`)

// active are the types that may run.
var active = regexp.MustCompile(`html|xml|svg|script|pdf|flash`)

// runsNowhere requires of an answer that no browser runs what is in it at the hub's address.
func runsNowhere(t *testing.T, request string, status int, header http.Header) {
	t.Helper()
	require.Regexp(t, "^sandbox( allow-same-origin)?; default-src 'none';", header.Get("Content-Security-Policy"), request)
	if status < 400 || header.Get("Content-Type") != "" {
		require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), request)
	}
	if status >= 300 || header.Get("Content-Length") == "0" {
		return
	}
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	family, name, _ := strings.Cut(kind, "/")
	shown := slices.Contains([]string{"text/plain", "application/json", "application/x-ndjson", "text/event-stream"}, kind) ||
		slices.Contains([]string{"image", "video", "audio"}, family) && !strings.Contains(name, "svg") && !strings.Contains(name, "xml")
	require.True(t, shown || strings.HasPrefix(header.Get("Content-Disposition"), "attachment"), "%s: %v", request, header)
}

// evilMachine is an instance that answers every call for something evil with a page of the
// type that its ending has.
func evilMachine(t *testing.T, types map[string]string) string {
	t.Helper()
	i := newInstance(t, sim.Config{Version: "0.2.0"})
	return simtest.Front(t, i.url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
		if !strings.Contains(r.URL.Path, "evil") {
			rest.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", types[path.Ext(r.URL.Path)])
		w.Header().Set("Content-Disposition", "inline")
		w.Header().Set("Content-Security-Policy", "script-src *")
		_, _ = io.WriteString(w, evil)
	}).URL
}

// What users, nodes, workers and machines made has no rights at the hub's address, whichever
// route answers with it and whatever its name and its type are: of each type one ending, and of
// vendors' types a few; with COMFYHUB_SLOW all endings.
func TestNothingMadeRunsAsAPage(t *testing.T) {
	if testing.Short() {
		t.Skip("tens of thousands of requests, one after the other: nothing for the race detector")
	}
	inBubble(t, func(t *testing.T) {
		types := map[string]string{}
		var families []string
		for line := range strings.Lines(mimetypes) {
			ext, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
			family := vendor.ReplaceAllString(kind, "/vnd")
			if os.Getenv("COMFYHUB_SLOW") != "" || !slices.Contains(families, family) && (len(families)%3 == 0 || active.MatchString(kind)) {
				types[ext] = kind
			}
			families = append(families, family)
		}
		require.Greater(t, len(types), 50)
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{evilMachine(t, types)} })
		get := func(path string) (int, http.Header, string) {
			t.Helper()
			return b.ask(http.MethodGet, path, "", http.Header{"Accept": {"text/html"}, "Sec-Fetch-Dest": {"document"}})
		}
		seen, tenants := map[string]bool{}, map[string]string{}
		for ext := range types {
			// Whoever puts a picture there has all of theirs counted.
			b.tenant = fmt.Sprintf("tenant%d", len(tenants)/32)
			tenants[ext] = b.tenant
			name := "evil" + ext
			status, name := b.upload(name, "", evil)
			require.Equal(t, http.StatusOK, status)
			for _, step := range []exchange{
				{method: "POST", path: "/userdata/" + url.PathEscape(name), body: evil},
				{method: "PUT", path: files.HeldPath + url.PathEscape(name), body: evil},
			} {
				status, answer := read(t, b.send(step))
				require.Less(t, status, 300, "%s %s: %s", step.method, step.path, answer)
			}
			_, link := b.linkTo(fmt.Sprintf(`{"filename": %q, "type": "input"}`, name))
			for route, path := range map[string]string{
				"view": "/view?type=input&filename=" + url.QueryEscape(name), "file": "/userdata/" + url.PathEscape(name),
				"held": files.HeldPath + url.PathEscape(name), "link": link, "node": "/pack/" + url.PathEscape(name),
				"a node below /api": "/api/pack/" + url.PathEscape(name), "metadata": "/view_metadata/x?filename=" + url.QueryEscape(name),
				"template": "/api/workflow_templates/pack/" + url.PathEscape(name), "preview": "/experiment/models/preview/x/0/" + url.PathEscape(name),
			} {
				status, header, body := get(path)
				runsNowhere(t, path, status, header)
				seen[route] = seen[route] || strings.Contains(body, evil)
			}
			require.Equal(t, http.StatusNoContent, statusOf(read(t, b.send(exchange{method: "DELETE", path: "/userdata/" + url.PathEscape(name)}))))
		}
		for _, route := range []string{"view", "file", "held", "link", "node", "a node below /api", "template", "preview"} {
			require.True(t, seen[route], "%s gives what was put there", route)
		}

		// And so for every route that there is, but for the hub's own pages, which have policies
		// of their own.
		walk := walker{rooms: b.rooms, tenant: tenants[".svg"], who: "evil.svg", oneIn: inTheGate(3)}
		walk.walk(t, http.MethodGet)
		for _, a := range walk.answers {
			request, err := url.PathUnescape(a.request)
			require.NoError(t, err, a.request)
			if strings.Contains(request, "/extensions/comfyhub/panel.js") || strings.HasPrefix(a.header.Get("Content-Security-Policy"), "default-src 'none'; s") {
				require.NotContains(t, a.body, evil, a.request)
				continue
			}
			runsNowhere(t, a.request, a.status, a.header)
		}
	})
}

// The web UI is no content: its scripts and those of extensions run, in their machine's own words.
func TestWebUIRuns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) {
			b.settings.Instances = []string{evilMachine(t, map[string]string{".js": "text/javascript", ".html": "text/html"})}
		})
		for _, path := range []string{"/extensions/evil/a.js", "/assets/evil-1234.js", "/scripts/evil.js", "/extensions/evil/a.html", "/evil.js"} {
			status, header, body := b.ask(http.MethodGet, path, "", nil)
			require.Equal(t, http.StatusOK, status, path)
			require.Equal(t, evil, body, path)
			require.Equal(t, "script-src *", header.Get("Content-Security-Policy"), path)
		}
		status, header, _ := b.ask(http.MethodGet, "/", "", http.Header{"Accept": {"text/html"}})
		require.Equal(t, http.StatusOK, status)
		require.Empty(t, header.Get("Content-Security-Policy"))
	})
}

// exchange is a request and a real server's answer to it. Times and random parts
// of ids are matched by patterns.
type exchange struct {
	method, path, body string
	header             map[string]string
	status             int
	want               string // the body, or a pattern if it begins with ^
}

func (b *bench) play(steps []exchange) {
	b.t.Helper()
	for n, step := range steps {
		resp := b.send(step)
		status, body := read(b.t, resp)
		require.Equal(b.t, step.status, status, "step %d: %s %s: %s", n, step.method, step.path, body)
		if strings.HasPrefix(step.want, "^") {
			require.Regexp(b.t, step.want, string(body), "step %d: %s %s", n, step.method, step.path)
			continue
		}
		require.Equal(b.t, step.want, string(body), "step %d: %s %s", n, step.method, step.path)
		if step.want == "" && status < http.StatusMultipleChoices && step.method != http.MethodHead {
			require.Empty(b.t, resp.Header.Get("Content-Type"), "an empty answer has no type")
		}
	}
}

func (b *bench) send(step exchange) *http.Response {
	b.t.Helper()
	var body io.Reader
	if step.body != "" {
		body = strings.NewReader(step.body)
	}
	req := must(http.NewRequest(step.method, b.web.URL+step.path, body))(b.t)
	for key, value := range step.header {
		if key == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(key, value)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(b.t, err)
	return resp
}

// versioned is a bench with one instance of a version.
func versioned(t *testing.T, version string, change ...func(*bench)) *bench {
	t.Helper()
	return newBench(t, 0, append(change, serving(sim.Config{Version: version}))...)
}

const trouble = "500 Internal Server Error\n\nServer got itself in trouble"

// Some proxies decode the slash in the name of a workflow. It is the same file.
func TestUserdataWithDecodedSlashes(t *testing.T) {
	inBench(t, benchOf(0), func(t *testing.T, b *bench) {
		require.Equal(t, "two..dots.png", answered(b.upload("two..dots.png", "", "picture"))(t, http.StatusOK))
		b.play([]exchange{
			{method: "POST", path: "/api/userdata/workflows/a.json", body: `{"x":1}`, status: 200, want: `"workflows/a.json"`},
			{method: "GET", path: "/userdata/workflows%2Fa.json", status: 200, want: `{"x":1}`},
			{method: "GET", path: "/userdata?dir=workflows&full_info=TRUE", status: 200, want: `^\[\{"path": "a.json", "size": 7, "modified": \d+\.?\d*, "created": \d+\.?\d*\}\]$`},
			{method: "POST", path: "/userdata/workflows%2Fa.json/move/..%2Fx", status: 403},
			{method: "GET", path: "/userdata/workflows/a.json", status: 200, want: `{"x":1}`},
			{method: "POST", path: "/userdata/workflows/a.json/move/workflows/deep/b.json", status: 200, want: `"workflows/deep/b.json"`},
			{method: "GET", path: "/userdata/workflows/a.json", status: 404},
			{method: "POST", path: "/userdata/workflows/move/c.json/d.json", body: `{}`, status: 200, want: `"workflows/move/c.json/d.json"`},
			{method: "POST", path: "/userdata/a.json/move/b.json/move/c.json", status: 405, want: "405: Method Not Allowed"},
			{method: "DELETE", path: "/userdata/workflows/deep/b.json", status: 204},
			{method: "GET", path: "/userdata/workflows/deep/b.json", status: 404},
			{method: "POST", path: "/userdata/workflows//a.json", body: `{}`, status: 405, want: "405: Method Not Allowed"},
			{method: "GET", path: "/userdata/workflows/%252e%252e/%252e%252e/x", status: 403},
			// A name that only contains two dots leads nowhere else. Uploads take it, so /view finds it.
			{method: "GET", path: "/view?type=input&filename=two..dots.png", status: 200, want: "picture"},
			{method: "GET", path: "/view?type=input&filename=x/../two..dots.png", status: 400},
			{method: "GET", path: "/view?type=input&filename=..", status: 400},
			{method: "GET", path: `/view?type=input&filename=..%5Ctwo..dots.png`, status: 400},
		})
	})
}

func TestUserfileHeaders(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := versioned(t, "0.3.64")
		b.settings.MaxUpload = 20
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		large := answered(b.post("/userdata/x", strings.Repeat("0", 20)))(t, http.StatusRequestEntityTooLarge)
		require.Equal(t, "Maximum request body size 20 exceeded, actual body size 20", string(large))
		require.Equal(t, http.StatusNotFound, statusOf(b.get("/userdata/x")))
		b.post("/userdata/page.html", "0123456789")
		b.post("/userdata/user.css", "a {}")
		resp := b.send(exchange{method: "GET", path: "/userdata/page.html", header: map[string]string{"Range": "bytes=2-4"}})
		body := answered(read(t, resp))(t, http.StatusPartialContent)
		require.Equal(t, "234", string(body))
		require.Equal(t, "bytes 2-4/10", resp.Header.Get("Content-Range"))
		require.Equal(t, "attachment", resp.Header.Get("Content-Disposition"))
		require.Equal(t, "application/octet-stream", resp.Header.Get("Content-Type"))
		require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
		require.Regexp(t, `^"[0-9a-f]+-a"$`, resp.Header.Get("Etag"))

		resp = b.send(exchange{method: "GET", path: "/userdata/page.html", header: map[string]string{"If-None-Match": resp.Header.Get("Etag")}})
		require.Equal(t, http.StatusNotModified, statusOf(read(t, resp)))
		resp = b.send(exchange{method: "HEAD", path: "/userdata/user.css"})
		body = answered(read(t, resp))(t, http.StatusOK)
		require.Empty(t, body)
		require.Equal(t, "4", resp.Header.Get("Content-Length"))
		require.Equal(t, "text/css", resp.Header.Get("Content-Type"))
		require.Equal(t, "attachment", resp.Header.Get("Content-Disposition"), "pages that include it take no notice")
	})
}

func TestSeveralUsers(t *testing.T) {
	inBench(t, benchOf(0, func(b *bench) { b.settings.MultiUser = true }), func(t *testing.T, b *bench) {
		_, body := b.post("/users", `{"username": "alice"}`)
		alice := map[string]string{"comfy-user": strings.Trim(string(body), `"`)}
		b.play([]exchange{
			{method: "GET", path: "/users", status: 200, want: `^\{"storage": "server", "users": \{"alice_[0-9a-f-]{36}": "alice"\}\}$`},
			{method: "POST", path: "/users", body: `{"username": "alice"}`, status: 400, want: `{"error": "Duplicate username."}`},
			{method: "POST", path: "/users", body: `{"username": ""}`, status: 500, want: trouble},
			{method: "POST", path: "/users", body: `{}`, status: 500, want: trouble},
			{method: "GET", path: "/settings", status: 401, want: "401: Unauthorized"},
			{method: "GET", path: "/settings", header: alice, status: 200, want: "{}"},
			{method: "GET", path: "/settings", header: map[string]string{"comfy-user": "nobody"}, status: 401, want: "401: Unauthorized"},
			{method: "POST", path: "/settings/A", header: alice, body: "1", status: 200},
			{method: "GET", path: "/settings", header: alice, status: 200, want: `{"A": 1}`},
			{method: "GET", path: "/userdata?dir=.", status: 500, want: trouble},
			{method: "GET", path: "/v2/userdata", status: 403, want: "Invalid user specified in request"},
			{method: "POST", path: "/userdata/x.json", header: alice, body: "{}", status: 200, want: `"x.json"`},
			{method: "GET", path: "/userdata?dir=.", header: alice, status: 200, want: `["comfy.settings.json", "x.json"]`},
		})
	})
}
