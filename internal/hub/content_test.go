package hub

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
			if family := vendor.ReplaceAllString(kind, "/vnd"); os.Getenv("COMFYHUB_SLOW") != "" || !slices.Contains(families, family) {
				families = append(families, family)
				types[ext] = kind
			}
		}
		require.Greater(t, len(types), 100)
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
			status, _ = read(t, b.send(exchange{method: "DELETE", path: "/userdata/" + url.PathEscape(name)}))
			require.Equal(t, http.StatusNoContent, status)
		}
		for _, route := range []string{"view", "file", "held", "link", "node", "a node below /api", "template", "preview"} {
			require.True(t, seen[route], "%s gives what was put there", route)
		}

		// And so for every route that there is, but for the hub's own pages, which have policies
		// of their own.
		walk := walker{rooms: b.rooms, tenant: tenants[".svg"], who: "evil.svg"}
		walk.walk(t, http.MethodGet)
		for _, a := range walk.answers {
			if strings.HasPrefix(a.header.Get("Content-Security-Policy"), "default-src 'none'; s") {
				require.NotContains(t, a.body, evil, a.request)
				continue
			}
			runsNowhere(t, a.request, a.status, a.header)
		}
	})
}

// The web UI is no content: its scripts and those of extensions run, in their machine's own
// words.
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
