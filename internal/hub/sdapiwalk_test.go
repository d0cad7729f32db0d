package hub

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
)

// belongingsA1111 is what the owner sees of its own by A1111's API.
func belongingsA1111(t *testing.T, c sd) map[string]string {
	t.Helper()
	seen := map[string]string{}
	for _, path := range []string{"/sdapi/v1/options", "/internal/pending-tasks", "/queue", "/history", "/userdata/a1111.options.json"} {
		status, answer := c.do("GET", path, "")
		require.Equal(t, http.StatusOK, status, path)
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
	status, text := c.do("POST", "/sdapi/v1/options", `{"sd_vae": "`+content+`"}`)
	require.Equal(t, http.StatusOK, status, text)
	answers := make(chan string, 2)
	live := func(count int) {
		t.Helper()
		eventually(t, func() bool {
			jobs, err := b.hub.Jobs().Live(t.Context(), owner)
			require.NoError(t, err)
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
		w := walker{rooms: b.rooms, tenant: tenant, who: who, bound: bound}
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

	// Somebody who has a job of its own there stops that, and sees that, alone.
	mallory := sd{b: b, name: "webuiapi", login: "mallory"}
	stopped := make(chan string, 1)
	go func() {
		_, answer := mallory.do("POST", "/sdapi/v1/txt2img", `{"prompt": "mine"}`)
		stopped <- answer
	}()
	eventually(t, func() bool {
		_, seen := mallory.do("GET", "/sdapi/v1/progress", "")
		require.NotContains(t, seen, "iVBOR", "the picture that another's job makes")
		return strings.Contains(seen, `"job_count": 1`)
	}, time.Minute, time.Millisecond)
	for _, path := range []string{"skip", "interrupt", "interrupt"} {
		require.Equal(t, http.StatusOK, first(mallory.do("POST", "/sdapi/v1/"+path, "")))
	}
	require.Contains(t, <-stopped, `"images": []`)
	_, seen = c.do("GET", "/sdapi/v1/progress", "")
	require.Contains(t, seen, `"interrupted": false`)
	live(2)
	for range 2 {
		require.Equal(t, http.StatusOK, first(c.do("POST", "/sdapi/v1/interrupt", "")))
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
		require.Equal(t, status, first(c.do("GET", path, "")), path)
	}
	require.Equal(t, http.StatusForbidden, first(c.do("POST", "/sdapi/v1/shutdown", "")))
	b.settings.Passthrough = PassthroughOn
	require.NoError(t, b.hub.Start(t.Context(), b.settings))
	require.Equal(t, http.StatusNotFound, first(c.do("GET", "/sdapi/v1/log", "")), "the server's answer")
	require.Equal(t, http.StatusForbidden, first(c.do("POST", "/sdapi/v1/shutdown", "")), "that needs manager")
}

// Pages of other sites are refused as at ComfyUI's routes, whatever they send.
func TestA1111ForeignPages(t *testing.T) {
	t.Parallel()
	b := withA1111(t, 0, newA1111(t, simsd.Config{}))
	b.tenant = "ada"
	const lan = "hub.lan:8188"
	routes := []exchange{{method: "GET", path: "/controlnet/model_list"}, {method: "POST", path: "/%73dapi/v1/interrupt"}}
	for _, p := range published("") {
		method, path, _ := strings.Cut(p.route, " ")
		routes = append(routes, exchange{method: method, path: path, body: p.body})
	}
	for name, c := range map[string]struct {
		host, origin, site string
		// acts and reads say whether requests that do something, and others, are refused.
		acts, reads bool
	}{
		"a script":                           {host: lan},
		"the hub's own page":                 {host: lan, origin: "http://hub.lan:8188", site: "same-origin"},
		"another site":                       {host: lan, origin: "http://evil.example", acts: true, reads: true},
		"another site that hides its Origin": {host: lan, site: "cross-site", acts: true, reads: true},
		"a sibling that hides its Origin":    {host: lan, site: "same-site", acts: true},
		"a sandboxed frame":                  {host: lan, origin: "null", acts: true},
		"another site, at this machine":      {origin: "http://evil.example", acts: true, reads: true},
	} {
		for _, step := range routes {
			step.header = headers("Host", c.host, "Origin", c.origin, "Sec-Fetch-Site", c.site, "Content-Type", "text/plain")
			comfy := step
			comfy.path, comfy.body = "/queue", "{}"
			want, _ := read(t, b.send(comfy))
			status, _ := read(t, b.send(step))
			refused := step.method == "GET" && c.reads || step.method == "POST" && c.acts
			require.Equal(t, refused, status == http.StatusForbidden, "%s: %s %s: %d", name, step.method, step.path, status)
			require.Equal(t, refused, want == http.StatusForbidden, "%s: %s /queue", name, step.method)
		}
	}
	b.strange = true // a name that an attacker's DNS has led here
	for _, step := range routes {
		status, answer := read(t, b.send(step))
		require.Equal(t, http.StatusForbidden, status, step.path)
		require.Contains(t, string(answer), "unknown_host")
	}
}
