// Package sdapi is the room of A1111's API (AUTOMATIC1111's Stable Diffusion web UI) for
// clients that know nothing of a hub. A request waits in the queue of all jobs while its
// client waits for the answer. The room translates between that API and the core, and has no
// queue, files or rules of its own.
package sdapi

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
)

// prefix is where the routes are.
const prefix = "/sdapi/v1/"

// room answers the routes of A1111's API. Handlers that belong together are the methods of a
// type of their own.
type room struct {
	*api.Requests
	hub func() Core // the parts of the moment
	// own are the routes that the hub answers itself.
	own *api.Router
}

const (
	// quiet is how long a request is silent before white space is sent: less than the minute after
	// which proxies cut it. beat is the pause between two such signs of life.
	quiet = 45 * time.Second
	beat  = 15 * time.Second
)

// Routes are the routes of the room, on a hub whose parts core returns.
func Routes(core func() Core, requests *api.Requests) api.Optional {
	o := &room{Requests: requests, hub: core, own: &api.Router{}}
	table := &api.Router{}
	handle := func(pattern string, handler api.Handler) {
		handler = api.Translating(problemOf, handler)
		o.own.Handle(pattern, handler)
		table.Handle(pattern, handler)
	}
	posts, tasks, settings, surveys := jobMakers{o}, tasks{o}, settings{o}, surveys{o}
	for _, path := range a1111.Paths() {
		handle("POST "+prefix+path, posts.postRequest(a1111.ClassOf(path)))
	}
	handle("GET "+prefix+"progress", tasks.getProgress)
	handle("POST "+prefix+"interrupt", tasks.postInterrupt)
	handle("POST "+prefix+"skip", tasks.postSkip)
	handle("GET "+prefix+"options", settings.getOptions)
	handle("POST "+prefix+"options", settings.postOptions)
	for path, merge := range listings() {
		handle("GET "+prefix+path, surveys.getList(merge))
	}
	handle("GET "+prefix+"cmd-flags", surveys.getFlags)
	handle("GET "+prefix+"memory", surveys.getMemory)
	for _, path := range a1111.Refreshes() {
		handle("POST "+prefix+path, surveys.postRefresh(path))
	}
	handle("POST "+prefix+"unload-checkpoint", surveys.postMemory)
	handle("POST "+prefix+"reload-checkpoint", surveys.postMemory)
	// What clients that choose the id of a task (force_task_id) ask about it.
	handle("POST /internal/progress", tasks.postTask)
	handle("GET /internal/pending-tasks", tasks.getPendingTasks)
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		for _, below := range []string{prefix, "/controlnet/"} {
			table.Handle(method+" "+below+"**", o.pass) // a server's own errors are for the client to see
		}
	}
	return api.Optional{Router: table, On: func() bool { return !o.hub().Settings.NoA1111API }}
}

// managed are the routes that change a server: restart it, or write models to its disk.
var managed = []string{
	prefix + "server-kill", prefix + "server-restart", prefix + "server-stop", prefix + "shutdown", prefix + "create", prefix + "train",
}

// harmless are the routes of Forge, SD.Next and ControlNet that tell what a server has. Their
// other ones may tell what others do there: SD.Next's log has prompts, its browser pictures.
var harmless = []string{
	"/controlnet", prefix + "version", prefix + "controlnets", prefix + "preprocessors", prefix + "masking", prefix + "detailers",
	prefix + "extra-networks", prefix + "lora", prefix + "checkpoint",
}

// pass lets a server answer what is no route of the hub, if the operator's passthrough allows
// that.
func (o *room) pass(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	path := api.PathOf(r)
	policy := o.hub().Settings.PassthroughOf(a.Login)
	switch {
	case path.Climbs(), o.own.Resembles(path):
		status := http.StatusNotFound
		if _, _, allowed := o.own.Find(r.Method, path); len(allowed) > 0 {
			status = http.StatusMethodNotAllowed
			slices.Sort(allowed)
			w.Header().Set("Allow", strings.Join(allowed, ", "))
		}
		writeDetail(w, status, http.StatusText(status))
		return
	case path.Below(managed...) && !(o.hub().Settings.Manager && a.MayManage()):
		writeDetail(w, http.StatusForbidden, "Changing the servers through the hub is switched off. The hub's operator can allow it with `manager on`; an API key needs the scope admin, too.")
		return
	case r.Header.Get("Upgrade") != "", policy == config.PassthroughOff, policy == config.PassthroughRead && !(api.IsRead(r) && path.Below(harmless...)):
		writeDetail(w, http.StatusForbidden, "This call is none of the hub's own, and passing it on to a server is switched off. The hub's operator can allow it with `passthrough`.")
		return
	}
	client := o.serverOf(r, a)
	if client == nil {
		writeNoServer(w)
		return
	}
	client.Forward(w, r, path, nil, func(w http.ResponseWriter, r *http.Request, err error) {
		if r.Context().Err() == nil {
			o.Log().Debug("an instance did not answer", "error", err)
			writeNoServer(w)
		}
	})
}

// serverOf is the server that runs the requester's job, else the first one; nil if none is
// connected.
func (o *room) serverOf(r *http.Request, a api.Requester) *comfyui.Client {
	if own, err := o.jobs(r.Context(), a); err == nil && len(own) > 0 {
		if client := o.hub().Servers.ClientOf(own[0].Run.Instance); client != nil && isRunning(own[0]) {
			return client
		}
	}
	if servers := o.hub().Servers.A1111(a.Tenant); len(servers) > 0 {
		return servers[0]
	}
	return nil
}

// pathOf is a path of A1111's API as instances are asked.
func pathOf(path string) string { return aiohttp.MustPath(prefix + path).Escaped() }
