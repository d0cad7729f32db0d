package hub

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

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
	req, err := http.NewRequest(step.method, b.web.URL+step.path, body)
	require.NoError(b.t, err)
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
	return newBench(t, 0, append(change, func(b *bench) {
		b.instances = append(b.instances, newInstance(t, sim.Config{Version: version}))
	})...)
}

const trouble = "500 Internal Server Error\n\nServer got itself in trouble"

func TestUserdata(t *testing.T) {
	t.Parallel()
	for version, at := range map[string]string{"0.3.64": `\d{10}\.\d+`, "0.33.0": `\d{13}`} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			b := versioned(t, version)
			info := func(path string) string {
				return `\{"path": "` + path + `", "size": 7, "modified": ` + at + `, "created": ` + at + `\}`
			}
			file := func(name string) string {
				return `\{"name": "` + name + `", "path": "workflows/` + name + `", "type": "file", "size": 7, "modified": \d{10}\.\d+\}`
			}
			b.play([]exchange{
				{method: "GET", path: "/userdata?dir=workflows", status: 404, want: "Directory not found"},
				{method: "GET", path: "/userdata", status: 400, want: "Directory not provided"},
				{method: "GET", path: "/v2/userdata", status: 200, want: "[]"},
				{method: "POST", path: "/userdata/workflows%2Fa.json", body: `{"x":1}`, status: 200, want: `"workflows/a.json"`},
				{method: "POST", path: "/api/userdata/workflows%2Fa.json", body: `{"x":2}`, status: 200, want: `"workflows/a.json"`},
				{method: "POST", path: "/userdata/workflows%2Fa.json?overwrite=false", body: `{"x":3}`, status: 409, want: "File already exists"},
				{method: "POST", path: "/userdata/workflows%2Fb.json?full_info=true", body: `{"x":4}`, status: 200, want: "^" + info("workflows/b.json") + "$"},
				{method: "POST", path: "/userdata/workflows/c.json", body: `{}`, status: 405, want: "405: Method Not Allowed"},
				{method: "GET", path: "/userdata/workflows%2Fa.json", status: 200, want: `{"x":2}`},
				{method: "GET", path: "/userdata/workflows/a.json", status: 404},
				{method: "GET", path: "/userdata/nope.json", status: 404},
				{method: "GET", path: "/userdata/..%2F..%2Fx", status: 403},
				{method: "GET", path: "/userdata/%252e%252e%252fx", status: 403},
				{method: "GET", path: "/userdata?dir=workflows", status: 200, want: `["a.json", "b.json"]`},
				{method: "GET", path: "/userdata?dir=workflows&recurse=true", status: 200, want: `["a.json", "b.json"]`},
				{method: "GET", path: "/userdata?dir=workflows&full_info=TRUE", status: 200, want: `^\[` + info("a.json") + ", " + info("b.json") + `\]$`},
				{method: "GET", path: "/userdata?dir=workflows&split=true", status: 200, want: `[["a.json", "a.json"], ["b.json", "b.json"]]`},
				{method: "GET", path: "/userdata?dir=.", status: 200, want: "[]"},
				{method: "GET", path: "/userdata?dir=.&recurse=true", status: 200, want: `["workflows/a.json", "workflows/b.json"]`},
				{method: "GET", path: "/userdata?dir=..", status: 403, want: "Invalid directory"},
				{method: "GET", path: "/v2/userdata", status: 200, want: `^\[\{"name": "workflows", "path": "workflows", "type": "directory"\}, ` + file("a.json") + ", " + file("b.json") + `\]$`},
				{method: "GET", path: "/v2/userdata?path=workflows", status: 200, want: `^\[` + file("a.json") + ", " + file("b.json") + `\]$`},
				{method: "GET", path: "/v2/userdata?path=nope", status: 404, want: "Requested path not found"},
				{method: "GET", path: "/v2/userdata?path=..", status: 400, want: "Invalid path requested"},
				{method: "POST", path: "/userdata/workflows%2Fa.json/move/workflows%2Fz.json", status: 200, want: `"workflows/z.json"`},
				{method: "POST", path: "/userdata/workflows%2Fz.json/move/workflows%2Fb.json?overwrite=false", status: 409, want: "File already exists"},
				{method: "POST", path: "/userdata/workflows%2Fz.json/move/workflows%2Fy.json?full_info=true", status: 200, want: "^" + info("workflows/y.json") + "$"},
				{method: "POST", path: "/userdata/nope/move/x", status: 404},
				{method: "POST", path: "/userdata/workflows%2Fy.json/move/..%2Fx", status: 403},
				{method: "DELETE", path: "/userdata/workflows%2Fy.json", status: 204},
				{method: "DELETE", path: "/userdata/workflows%2Fy.json", status: 404},
				{method: "DELETE", path: "/userdata/workflows%2Fb.json", status: 204},
				{method: "GET", path: "/userdata?dir=workflows", status: 200, want: `[]`},
				{method: "PUT", path: "/userdata/x", body: "x", status: 405, want: "405: Method Not Allowed"},
			})
			resp := b.send(exchange{method: "PUT", path: "/userdata/x"})
			read(t, resp)
			require.Equal(t, "DELETE,GET,HEAD,POST", resp.Header.Get("Allow"))
		})
	}
}

func TestUserfileHeaders(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := versioned(t, "0.3.64")
		b.post("/userdata/page.html", "0123456789")
		b.post("/userdata/user.css", "a {}")
		resp := b.send(exchange{method: "GET", path: "/userdata/page.html", header: map[string]string{"Range": "bytes=2-4"}})
		status, body := read(t, resp)
		require.Equal(t, http.StatusPartialContent, status)
		require.Equal(t, "234", string(body))
		require.Equal(t, "bytes 2-4/10", resp.Header.Get("Content-Range"))
		require.Equal(t, "attachment", resp.Header.Get("Content-Disposition"))
		require.Equal(t, "application/octet-stream", resp.Header.Get("Content-Type"))
		require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
		require.Regexp(t, `^"[0-9a-f]+-a"$`, resp.Header.Get("Etag"))

		resp = b.send(exchange{method: "GET", path: "/userdata/page.html", header: map[string]string{"If-None-Match": resp.Header.Get("Etag")}})
		status, _ = read(t, resp)
		require.Equal(t, http.StatusNotModified, status)
		resp = b.send(exchange{method: "HEAD", path: "/userdata/user.css"})
		status, body = read(t, resp)
		require.Equal(t, http.StatusOK, status)
		require.Empty(t, body)
		require.Equal(t, "4", resp.Header.Get("Content-Length"))
		require.Equal(t, "text/css", resp.Header.Get("Content-Type"))
		require.Equal(t, "attachment", resp.Header.Get("Content-Disposition"), "pages that include it take no notice")
	})
}

// One instance that says it is old, or is, must not make the hub show users' files as pages.
func TestFilesAreNoPagesAtAnyVersion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := versioned(t, "0.3.64")
		for _, name := range []string{"a.svg", "a.svgz", "a.xml", "a.xsl", "a.rdf", "a.html"} {
			_, _ = b.upload(name, "", "<svg/>")
			b.post("/userdata/"+name, "<svg/>")
			for _, path := range []string{"/view?type=input&filename=" + name, "/userdata/" + name} {
				resp := b.send(exchange{method: "GET", path: path})
				read(t, resp)
				require.Equal(t, http.StatusOK, resp.StatusCode, path)
				require.Equal(t, "application/octet-stream", resp.Header.Get("Content-Type"), path)
				require.Regexp(t, "^attachment", resp.Header.Get("Content-Disposition"), path)
				require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"), path)
			}
		}
	})
}

func TestUserfileLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) { b.settings.MaxUpload = 10 })
		status, body := b.post("/userdata/x", "0123456789")
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
		require.Equal(t, "Maximum request body size 10 exceeded, actual body size 10", string(body))
		status, _ = b.get("/userdata/x")
		require.Equal(t, http.StatusNotFound, status)
	})
}

func TestSettingsRoutes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0)
		b.play([]exchange{
			{method: "GET", path: "/users", status: 200, want: `{"storage": "server", "migrated": true}`},
			{method: "POST", path: "/users", body: `{"username": "bob"}`, status: 200, want: `^"bob_[0-9a-f-]{36}"$`},
			{method: "GET", path: "/settings", status: 200, want: "{}"},
			{method: "GET", path: "/settings/Comfy.Test", status: 200, want: "null"},
			{method: "POST", path: "/settings/Comfy.Test", body: `"value"`, status: 200},
			{method: "GET", path: "/api/settings/Comfy.Test", status: 200, want: `"value"`},
			{method: "POST", path: "/settings", body: `{"Comfy.Other": {"a": 1}}`, status: 200},
			{method: "GET", path: "/settings", status: 200, want: `{"Comfy.Test": "value", "Comfy.Other": {"a": 1}}`},
			{method: "POST", path: "/settings", body: `"x"`, status: 500, want: trouble},
			{method: "POST", path: "/settings", body: `{`, status: 500, want: trouble},
			{method: "GET", path: "/settings", header: map[string]string{"comfy-user": "nobody"}, status: 200, want: `{"Comfy.Test": "value", "Comfy.Other": {"a": 1}}`},
		})
		b.stop()
		b.start()
		require.Contains(t, b.text("/settings"), "Comfy.Other", "settings outlive the process")
	})
}

func TestSeveralUsers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 0, func(b *bench) { b.settings.MultiUser = true })
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
