// Package plain is the room of the plain job API: submit, status, cancel, wait, events and
// stats, for programs that know nothing of ComfyUI's messages. It translates between HTTP
// and the core and decides nothing itself. Its jobs are those of the other rooms.
package plain

import (
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/config"
)

// Prefix is where the routes are; aliases are at the root.
const Prefix = "/hub/v1"

// room answers the routes of the plain job API.
type room struct {
	*api.Requests
	hub func() Core
}

// Routes are the routes below Prefix and, unless the settings say otherwise, their
// aliases at the root.
func Routes(core func() Core, requests *api.Requests) []api.Optional {
	o := &room{Requests: requests, hub: core}
	below, root := &api.Router{}, &api.Router{}
	both := func(method, path string, handler api.Handler) {
		below.Handle(method+" "+Prefix+path, api.Translating(problemOf, handler))
		root.Handle(method+" "+path, api.Translating(problemOf, handler))
	}
	both("POST", "/submit", o.postSubmit)
	both("GET", "/status/*", o.getStatus)
	both("POST", "/cancel/*", o.postCancel)
	both("GET", "/wait/*", o.getWait)
	both("GET", "/events/*", o.getEvents)
	both("GET", "/stats", o.getStats)
	below.Handle("GET "+Prefix+"/openapi.json", api.Translating(problemOf, o.getDocument))
	below.Handle("GET "+Prefix+"/docs", api.Translating(problemOf, o.getDocs))
	return []api.Optional{
		{Router: below, On: func() bool { return core().Settings.PlainAPI != config.PlainAPIOff }},
		{Router: root, On: func() bool { return core().Settings.PlainAPI == config.PlainAPIRoot }, Yields: true},
	}
}
