package hub_test

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

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
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
		b.posts("/prompt", body)
	}
	named := func(graph string) string {
		return strings.ReplaceAll(graph, `"filename_prefix": "ComfyUI"`, fmt.Sprintf(`"filename_prefix": %q`, owner))
	}
	post(owner+"-ended", named(picture(7)))
	require.Equal(t, "success", b.finished(owner+"-ended").Status.Text)
	lasting := func(nonce int) string { // a third of a second between steps
		return strings.Replace(endless(nonce), `"steps": 240`, `"steps": 10000`, 1)
	}
	post(owner+"-running", lasting(1))
	eventually(t, func() bool { return started(b) == 2 }, time.Minute, 5*time.Millisecond)
	require.Equal(t, http.StatusOK, statusOf(b.upload(owner+".png", "", pixel(t, color.Gray{42}))))
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
		body := b.gets(path)
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
// route, method and spelling of the path it tries. The gate tries one in three names and
// spellings at each route, COMFYHUB_SLOW all.
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
	foreign := walker{rooms: b.rooms, tenant: "mallory", who: owner, oneIn: inTheGate(3)}
	foreign.walk(t, methods...)
	unknown := walker{rooms: b.rooms, tenant: "control", who: nobody, oneIn: inTheGate(3)}
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
	own := walker{rooms: b.rooms, tenant: owner, who: owner, plain: true}
	own.walk(t, http.MethodGet)
	found := map[string]bool{}
	for _, a := range own.answers {
		if a.has(content) || a.has(owner+"-ended") || a.status == http.StatusOK && strings.Contains(a.request, owner) && a.has(`image/png`) {
			found[a.route] = true
		}
	}
	for _, route := range []string{
		"/queue", "/api/queue", "/history", "/history/*", "/view", "/api/jobs", "/api/jobs/*", "/settings", "/settings/*",
		"/userdata/*", "/hub/jobs", "/hub/jobs/*", "/hub/jobs/*/whole", files.HeldPath + "*",
		"/api/v2/jobs", "/api/v2/jobs/*", "/api/v2/jobs/*/events", "/api/v2/assets/*",
		"/status/*", "/wait/*", "/events/*", "/hub/v1/status/*",
	} {
		require.True(t, found[route], "%s shows the owner its own", route)
	}
	t.Logf("%d requests", len(foreign.answers))

	// The owner still has its socket and can still stop its jobs.
	b.tenant = owner
	b.posts("/interrupt", `{"prompt_id": "`+owner+`-running"}`)
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
	b.tenant = "mallory"
	for _, as := range slices.Sorted(maps.Keys(all)) {
		// The request line is written by hand, because a URL would be cleaned.
		at := must(url.Parse(b.web.URL))(t)
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
	b.tenant = owner
	id := b.submit(picture(3), owner+"-client")
	socket.until(id)
	b.tenant = "mallory"
	own := b.submit(picture(4), owner+"-client")
	(&client{t: t, conn: conn}).until(own) // fails at a message of the owner's prompt
	require.NoError(t, conn.CloseNow())
}

// belongingsA1111 is what the owner sees of its own by A1111's API.
func belongingsA1111(t *testing.T, c sd) map[string]string {
	t.Helper()
	seen := map[string]string{}
	for _, path := range []string{"/sdapi/v1/options", "/internal/pending-tasks", "/queue", "/history", "/userdata/a1111.options.json"} {
		answer := c.does("GET", path, "")
		seen[path] = answer
	}
	return seen
}

// A tenant tries every route of A1111's API, with every method and many spellings of the
// path, while another's jobs run, wait, and have ended on the only server. It neither sees nor
// changes them, and cannot tell them from jobs that do not exist.
func TestA1111WalkOfTwoTenants(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of requests, one after the other: nothing for the race detector")
	}
	t.Parallel()
	server := newA1111(t, simsd.Config{StepTime: time.Millisecond})
	b := withA1111(t, 0, server)
	c := sd{b: b, name: "webuiapi", login: owner}
	request := func(steps int, task string) string {
		return fmt.Sprintf(`{"prompt": %q, "steps": %d, "n_iter": 2, "width": 8, "height": 8, "force_task_id": %q}`, content, steps, owner+"-"+task)
	}
	c.made("txt2img", request(1, "ended"))
	c.does("POST", "/sdapi/v1/options", `{"sd_vae": "`+content+`"}`)
	answers := make(chan string, 2)
	live := func(count int) {
		t.Helper()
		eventually(t, func() bool {
			jobs := must(b.hub.Jobs.Live(t.Context(), owner))(t)
			return len(jobs) == count
		}, time.Minute, time.Millisecond)
	}
	for n, task := range []string{"running", "waiting"} {
		go func() {
			_, answer := c.do("POST", "/sdapi/v1/txt2img", request(10_000_000, task))
			answers <- answer
		}()
		live(n + 1)
		b.running(1, server)
	}
	before := belongingsA1111(t, c)
	require.Contains(t, before["/sdapi/v1/options"], content)

	own := func(pattern string) bool {
		return slices.ContainsFunc([]string{"/sdapi/", "/controlnet/", "/internal/progress", "/internal/pending-tasks"}, func(prefix string) bool {
			return strings.HasPrefix(pattern, prefix)
		})
	}
	// A request for pictures waits behind the owner's, and so does a look for new files.
	bound := func(route string) time.Duration {
		name := strings.TrimPrefix(route, "/sdapi/v1/")
		if slices.Contains(a1111.Paths(), name) || slices.Contains(a1111.Refreshes(), name) {
			return 10 * time.Millisecond
		}
		return 0
	}
	walk := func(tenant, who string, methods ...string) []answer {
		w := walker{rooms: b.rooms, tenant: tenant, who: who, bound: bound, oneIn: inTheGate(3)}
		for _, table := range b.rooms.Routers() {
			for pattern := range table.All() {
				if own(pattern.String()) {
					w.route(t, pattern.String(), methods)
				}
			}
		}
		return w.answers
	}
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
	foreign, unknown := walk("mallory", owner, methods...), walk("control", nobody, methods...)
	require.Len(t, unknown, len(foreign))
	leaks := leaks{}
	for n, got := range foreign {
		switch want := unknown[n]; {
		case got.has(content):
			leaks.add(got, "shows what is another tenant's")
		case bound(got.route) == 0 && !want.isLike(got): // others may have been cut off
			leaks.add(got, "tells a name that exists from one that does not: "+want.alike())
		}
	}
	require.Empty(t, leaks, strings.Join(slices.Sorted(maps.Values(leaks)), "\n"))
	t.Logf("%d requests", len(foreign))
	require.Equal(t, before, belongingsA1111(t, c), "nothing of the owner's has changed")

	// The owner's run goes on, at its first picture, and the owner sees it.
	_, seen := c.do("GET", "/sdapi/v1/progress", "")
	for _, want := range []string{`"job_count": 2`, `"job_no": 0`, `"interrupted": false`, `"skipped": false`, `"sampling_steps": 10000000`, `"current_image": "iVBOR`} {
		require.Contains(t, seen, want)
	}
	for _, name := range []string{"running", "waiting"} {
		_, seen = c.do("POST", "/internal/progress", `{"id_task": "`+owner+"-"+name+`"}`)
		require.Contains(t, seen, `: true`, name)
	}

	for range 2 {
		b.running(1, server)
		eventually(t, func() bool { // a job that waits ends with nothing
			_, seen := c.do("GET", "/sdapi/v1/progress", "")
			return strings.Contains(seen, `"current_image": "iVBOR`)
		}, time.Minute, time.Millisecond)
		require.Equal(t, http.StatusOK, statusOf(c.do("POST", "/sdapi/v1/interrupt", "")))
		require.Contains(t, <-answers, content)
	}
}

// Servers have routes that tell what everybody does there, such as SD.Next's log. Somebody who
// logs in reads none of them, unless the operator has said so.
func TestA1111Passthrough(t *testing.T) {
	t.Parallel()
	server := newA1111(t, simsd.Config{})
	b := withA1111(t, 0, server)
	c := sd{b: b, name: "reader", login: "ann"}
	for path, status := range map[string]int{
		"/sdapi/v1/log": 403, "/sdapi/v1/log/": 403, "/sdapi/v1/history": 403, "/sdapi/v1/status": 403, "/sdapi/v1/latents": 403,
		"/sdapi/v1/browser/thumb?file=/outputs/1.png": 403, "/sdapi/v1/version/../log": 404, "/sdapi/v1/version/%2e%2e/log": 404,
		"/sdapi/v1/version": 404, "/controlnet/none": 404, "/controlnet/model_list": 200,
	} {
		require.Equal(t, status, statusOf(c.do("GET", path, "")), path)
	}
	require.Equal(t, http.StatusForbidden, statusOf(c.do("POST", "/sdapi/v1/shutdown", "")))
	b.settings.Passthrough = config.PassthroughOn
	require.NoError(t, b.hub.Start(t.Context(), b.settings))
	require.Equal(t, http.StatusNotFound, statusOf(c.do("GET", "/sdapi/v1/log", "")), "the server's answer")
	require.Equal(t, http.StatusForbidden, statusOf(c.do("POST", "/sdapi/v1/shutdown", "")), "that needs manager")
}
