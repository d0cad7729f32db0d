// Package ops is the room of the hub's own API, below /hub: the fleet, the jobs,
// why a job waits, and links to files. It translates between HTTP and the core
// and decides nothing itself.
package ops

import (
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/tunnel"
)

// room answers the routes below /hub.
type room struct {
	*api.Requests
	hub func() Core
	graphs
}

// Routes are the routes below /hub, answered by a hub whose parts core returns. They exist as written,
// not below /api.
func Routes(core func() Core, requests *api.Requests) *api.Router {
	o := &room{Requests: requests, hub: core}
	d, c, f := dashboard{o}, commands{o}, finder{o}
	t := &api.Router{}
	t.Handle("GET /hub/instances", o.getInstances)
	t.Handle("GET /hub/jobs", o.getJobs)
	t.Handle("GET /hub/jobs/*", o.getJob)
	t.Handle("PATCH /hub/jobs/*", o.patchJob)
	t.Handle("GET /hub/jobs/*/whole", f.getWholeJob)
	t.Handle("GET /hub/jobs/*/log", f.getJobLog)
	t.Handle("POST /hub/jobs/*/cancel", o.postJobCancel)
	t.Handle("POST /hub/jobs/*/again", f.postJobAgain)
	t.Handle("GET /hub/v1/hints/*", f.getHints)
	t.Handle("POST /hub/v1/hints/*/dismiss/*", f.postDismissal)
	t.Handle("POST /hub/v1/hints/*/restore/*", f.postRestoring)
	t.Handle("GET /hub/search", f.getSearch)
	t.Handle("POST /hub/search/cancel", f.postSearchCancel)
	t.Handle("POST /hub/search/again", f.postSearchAgain)
	t.Handle("GET /hub/callbacks", o.getCallbacks)
	t.Handle("GET /hub/callbacks/secret", o.getCallbackSecret)
	t.Handle("POST /hub/callbacks/*/replay", o.postCallbackReplay)
	t.Handle("GET /hub/stats", o.getStats)
	t.Handle("GET /hub/usage", o.getUsage)
	t.Handle("GET /hub/limits", d.getLimits)
	t.Handle("GET /hub/scale", o.getScale)
	t.Handle("GET /hub/events", d.getEvents)
	t.Handle("GET /hub/trends", d.getTrends)
	t.Handle("GET /hub/faults", d.getFaults)
	t.Handle("GET /hub/preview", d.getPreview)
	t.Handle("POST /hub/pause", c.command(Operator.Pause))
	t.Handle("POST /hub/resume", c.command(Operator.Resume))
	t.Handle("POST /hub/drain", c.postDrain)
	t.Handle("POST /hub/forget", c.postForget)
	t.Handle("POST /hub/restart", c.postRestart)
	t.HandleReading("POST /hub/explain", o.postExplain)
	t.Handle("POST /hub/files", o.postFiles)
	t.HandleOpen("GET "+api.LinkPath+"*", o.getFile)
	t.HandleOpen("GET "+tunnel.Path, o.getTunnel)
	t.HandleOpen("POST "+tunnel.Path, postTunnel(o))
	t.Audit("POST /hub/pause", "POST /hub/resume", "POST /hub/drain", "POST /hub/forget", "POST /hub/restart",
		"POST /hub/jobs/*/cancel", "POST /hub/jobs/*/again", "POST /hub/search/cancel", "POST /hub/search/again",
		"POST /hub/v1/hints/*/dismiss/*", "POST /hub/v1/hints/*/restore/*")
	return t
}
