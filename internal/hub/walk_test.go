package hub

import (
	"fmt"
	"image/color"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// leaks are the failures, one for each route and reason.
type leaks map[string]string

func (l leaks) add(a answer, what string) {
	key := a.route + " " + what[:12]
	if _, known := l[key]; !known {
		text := fmt.Sprintf("%s %s: %s", a.request, what, a.alike())
		l[key] = text[:min(len(text), 1500)]
	}
}

// endow fills a hub with things of every kind that belong to one tenant.
func endow(t *testing.T, b *bench) {
	t.Helper()
	b.tenant = owner
	post := func(id, graph string) {
		t.Helper()
		body := fmt.Sprintf(`{"prompt": %s, "prompt_id": %q, "client_id": %q, "extra_data": {"note": %q, "api_key_comfy_org": %q}}`,
			graph, id, owner+"-client", content, content)
		status, answer := b.post("/prompt", body)
		require.Equal(t, http.StatusOK, status, string(answer))
	}
	named := func(graph string) string {
		return strings.ReplaceAll(graph, `"filename_prefix": "ComfyUI"`, fmt.Sprintf(`"filename_prefix": %q`, owner))
	}
	post(owner+"-ended", named(picture(7)))
	require.Equal(t, "success", b.finished(owner+"-ended").Status.Text)
	lasting := func(nonce int) string { // a third of a second between steps
		return strings.Replace(endless(nonce), `"steps": 720`, `"steps": 10000`, 1)
	}
	post(owner+"-running", lasting(1))
	eventually(t, func() bool { return started(b) == 2 }, time.Minute, 5*time.Millisecond)
	status, _ := b.upload(owner+".png", "", pixel(t, color.Gray{42}))
	require.Equal(t, http.StatusOK, status)
	for _, step := range []exchange{
		{method: "POST", path: "/userdata/" + owner + ".json", body: `{"note": "` + content + `"}`},
		{method: "POST", path: "/userdata/" + owner + "%2Fdeep.json", body: `{"note": "` + content + `"}`},
		{method: "POST", path: "/settings", body: fmt.Sprintf(`{%q: %q}`, owner+".setting", content)},
		{method: "PUT", path: files.HeldPath + owner + "-held", body: content},
	} {
		resp := b.send(step)
		status, answer := read(t, resp)
		require.Less(t, status, 300, "%s %s: %s", step.method, step.path, answer)
	}
	// The only instance is busy, so this one waits.
	post(owner+"-waiting", lasting(2))
}

// belongings returns what the owner sees of its own things.
func belongings(t *testing.T, b *bench) map[string]string {
	t.Helper()
	b.tenant = owner
	seen := map[string]string{}
	for _, path := range []string{
		"/queue", "/history", "/api/jobs", "/hub/jobs", "/stats", "/status/" + owner + "-ended", "/prompt?clientId=" + owner + "-client",
		"/settings", "/userdata?dir=.&recurse=true&split=true", "/userdata/" + owner + ".json", "/userdata/" + owner + "%2Fdeep.json",
		"/view?type=input&filename=" + owner + ".png", "/view?filename=" + owner + "_00001_.png",
		"/internal/files/input", "/internal/files/output", files.HeldPath + owner + "-held", "/object_info/LoadImage", "/users",
	} {
		status, body := b.get(path)
		require.Equal(t, http.StatusOK, status, path)
		seen[path] = string(body)
	}
	// A running job makes progress.
	for _, path := range []string{"/api/jobs", "/hub/jobs"} {
		seen[path] = regexp.MustCompile(`"progress": [0-9.]+`).ReplaceAllString(seen[path], `"progress": 0`)
	}
	return seen
}

// A logged-in tenant knows every name of another tenant's things. It can neither
// see nor change them, and cannot tell them from names that do not exist, whatever
// route, method and spelling of the path it tries.
func TestWalkOfTwoTenants(t *testing.T) {
	if testing.Short() {
		t.Skip("tens of thousands of requests, one after the other: nothing for the race detector")
	}
	t.Parallel()
	b := newBench(t, 0, func(b *bench) {
		// At this pace nothing ends by itself while the walk lasts.
		b.instances = append(b.instances, newInstance(t, sim.Config{TimeScale: 1}))
	})
	endow(t, b)
	socket := b.dial(owner + "-client")
	before := belongings(t, b)

	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"}
	foreign := walker{rooms: b.rooms, tenant: "mallory", who: owner}
	foreign.walk(t, methods...)
	unknown := walker{rooms: b.rooms, tenant: "control", who: nobody}
	unknown.walk(t, methods...)
	require.Len(t, unknown.answers, len(foreign.answers))
	leaks := leaks{}
	for n, got := range foreign.answers {
		want := unknown.answers[n]
		switch {
		case got.has(content):
			leaks.add(got, "shows what is another tenant's")
		case want.has(owner):
			leaks.add(want, "names what is another tenant's")
		case !want.isLike(got):
			leaks.add(got, "tells a name that exists from one that does not: "+want.alike())
		}
	}
	require.Empty(t, leaks, strings.Join(slices.Sorted(maps.Values(leaks)), "\n"))
	require.Equal(t, before, belongings(t, b), "nothing of the owner's has changed")

	// The same requests from the owner find the things, so the names are right.
	own := walker{rooms: b.rooms, tenant: owner, who: owner}
	own.walk(t, http.MethodGet)
	found := map[string]bool{}
	for n, a := 0, own.answers; n < len(a); n++ {
		if a[n].has(content) || a[n].has(owner+"-ended") || a[n].status == http.StatusOK && strings.Contains(a[n].request, owner) && a[n].has(`image/png`) {
			found[a[n].route] = true
		}
	}
	for _, route := range []string{
		"/queue", "/api/queue", "/history", "/history/*", "/view", "/api/jobs", "/api/jobs/*", "/settings", "/settings/*",
		"/userdata/*", "/hub/jobs", "/hub/jobs/*", files.HeldPath + "*",
		"/status/*", "/wait/*", "/events/*", "/hub/v1/status/*",
	} {
		require.True(t, found[route], "%s shows the owner its own", route)
	}
	t.Logf("%d requests", len(foreign.answers))

	// The owner still has its socket and can still stop its jobs.
	b.tenant = owner
	status, _ := b.post("/interrupt", `{"prompt_id": "`+owner+`-running"}`)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "error", b.finished(owner+"-running").Status.Text)
	for {
		m := socket.next()
		require.True(t, strings.HasPrefix(m.Data.PromptID, owner), m.raw)
		if m.Type == "execution_interrupted" {
			require.Equal(t, owner+"-running", m.Data.PromptID)
			break
		}
	}
}

// A socket under the id of another tenant's client hears nothing of that client
// and takes nothing from it, however its path is spelled.
func TestWalkOfSockets(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.tenant = owner
	socket := b.dial(owner + "-client")
	all := spellings()
	var foreign []*websocket.Conn
	b.tenant = "mallory"
	for _, as := range slices.Sorted(maps.Keys(all)) {
		// The request line is written by hand, because a URL would be cleaned.
		at, err := url.Parse(b.web.URL)
		require.NoError(t, err)
		target := all[as]("/ws") + "?clientId=" + owner + "-client"
		at.Opaque = "//" + at.Host + target
		r := &http.Request{Method: http.MethodGet, URL: at, Host: at.Host, Header: http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
		}}
		resp, err := http.DefaultTransport.RoundTrip(r.WithContext(t.Context()))
		if err != nil {
			continue // the web server refuses it
		}
		if !slices.Contains([]string{"plain", "api", "escaped api", "all escaped", "upper escapes", "first escaped", "escaped slash", "slashes within"}, as) {
			require.NotEqual(t, http.StatusSwitchingProtocols, resp.StatusCode, as)
		}
		resp.Body.Close()
	}
	conn, _, err := websocket.Dial(t.Context(), b.web.URL+"/ws?clientId="+owner+"-client", nil)
	require.NoError(t, err)
	foreign = append(foreign, conn)
	b.tenant = owner
	id := b.submit(picture(3), owner+"-client")
	socket.until(id)
	b.tenant = "mallory"
	own := b.submit(picture(4), owner+"-client")
	for _, conn := range foreign {
		c := &client{t: t, conn: conn}
		c.until(own) // fails at a message of the owner's prompt
		require.NoError(t, conn.CloseNow())
	}
}
