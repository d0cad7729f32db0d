package api

import (
	"net/http"
	"strings"
	"sync"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// Core is what a Server needs of the hub itself.
type Core interface {
	// Started reports whether the hub can answer requests.
	Started() bool
	// Release is the version of the hub.
	Release() string
	// Version is the version of ComfyUI that the whole fleet can keep.
	Version() comfyui.Version
	// NoteLogin records a request by a user who has logged in.
	NoteLogin()
	// Operates reports whether a tenant is an operator of the hub.
	Operates(tenant string) bool
}

// Rooms answer requests.
type Rooms struct {
	// Own has the routes of the hub's own API, which are tried first.
	Own *Router
	// Optional are tried next, in their order.
	Optional []Optional
	// ComfyUI has the routes of ComfyUI that the hub answers itself.
	ComfyUI *Router
	// Forward answers what is no route of either.
	Forward func(w http.ResponseWriter, r *http.Request, a Requester, path aiohttp.Path)
}

// Optional are the routes of a room that the settings can switch off.
type Optional struct {
	*Router

	// On reports whether the routes are there now.
	On func() bool
	// Yields leaves a path to later rooms if the method is none of the route's, because
	// the route is outside of the hub's own names.
	Yields bool
}

// Server answers requests: it refuses those that no room may see, finds out who
// makes the others, and hands them to their rooms.
type Server struct {
	core     Core
	requests *Requests
	rooms    Rooms
	// proxied is done once a proxy was noticed that hides who asks.
	proxied sync.Once
}

// NewServer makes the server of a hub.
func NewServer(core Core, requests *Requests, rooms Rooms) *Server {
	return &Server{core: core, requests: requests, rooms: rooms}
}

// Serve answers one request of ComfyUI's HTTP and WebSocket API, or of the
// hub's own under /hub/.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, v Visitor) {
	w.Header().Set(comfyui.HubHeader, s.core.Release())
	if !s.core.Started() {
		WriteError(w, Error{
			Status: http.StatusServiceUnavailable, Kind: "starting",
			Message: "The hub is starting", RetryAfter: 1,
		})
		return
	}
	path, noPath := aiohttp.ReadPath(r.URL)
	if noPath == nil {
		r = WithPath(r, path)
	}
	if v.CORS != "" {
		w = withCORS(w, v.CORS, s.core.Version())
	}
	if refuseStrangers(w, r, v) {
		return
	}
	if r.Method == http.MethodOptions {
		WriteEmpty(w, http.StatusOK)
		return
	}
	if noPath != nil {
		writeNoPath(w, r)
		return
	}
	a := RequesterOf(r, v)
	a.Operator = a.Operator || s.core.Operates(a.Tenant)
	s.requests.Recent.confirm(a)
	if v.Proxied && !a.Login {
		s.proxied.Do(func() {
			s.requests.Log().Warn("requests come through a proxy that the server's trusted_proxies does not name: " +
				"clients that send neither a client id nor the hub's cookie cannot be told apart, so their interrupts and clears do nothing")
		})
	}
	if refuseLong(w, r, v, a) {
		return
	}
	arrived, err := s.requests.Intake.Guard(w, r, a.Share())
	if err != nil {
		w.Header().Set("Connection", "close")
		writeBusy(w)
		return
	}
	defer arrived()
	if a.Login {
		s.core.NoteLogin()
	}
	w = greet(w, r, v, &a)
	own, values, allowed := s.rooms.Own.Find(r.Method, path)
	if own != nil {
		own(w, r, a, values)
		return
	}
	if allowed != nil {
		writeNotAllowed(w, allowHeader(allowed))
		return
	}
	if s.serveOptional(w, r, a, path) {
		return
	}
	handler, values, allowed := s.rooms.ComfyUI.Find(r.Method, path)
	switch {
	case handler != nil:
		handler(w, r, a, values)
	case allowed == nil:
		s.forward(w, r, a, path)
	case isInternal(path):
		writeNotAllowed(w, listed(allowed))
	case IsRead(r):
		WriteNotFound(w, r) // as ComfyUI's catch-all static route does
	default:
		writeNotAllowed(w, allowHeader(allowed))
	}
}

// serveOptional answers a request for a route that is switched on.
func (s *Server) serveOptional(w http.ResponseWriter, r *http.Request, a Requester, path aiohttp.Path) bool {
	for _, room := range s.rooms.Optional {
		if !room.On() {
			continue
		}
		handler, values, allowed := room.Find(r.Method, path)
		if handler != nil {
			handler(w, r, a, values)
			return true
		}
		if allowed != nil && !room.Yields {
			writeNotAllowed(w, allowHeader(allowed))
			return true
		}
	}
	return false
}

// Routers are those of all rooms, in the order in which they are tried, whether they are
// switched on or not.
func (s *Server) Routers() []*Router {
	all := []*Router{s.rooms.Own}
	for _, room := range s.rooms.Optional {
		all = append(all, room.Router)
	}
	return append(all, s.rooms.ComfyUI)
}

// forward hands on what is no route of the hub, unless nobody may answer it.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, a Requester, path aiohttp.Path) {
	switch {
	case isInternal(path):
		WriteText(w, http.StatusNotFound, "404: Not Found")
	case path.Climbs(), strings.HasPrefix(path.String(), "//"):
		// An instance's address may have a path of its own, which ".." would
		// leave.
		writeNoPath(w, r)
	case s.isPrivate(path):
		WriteNotFound(w, r)
	default:
		s.rooms.Forward(w, r, a, path)
	}
}

// reserved are parts of ComfyUI's own interface. What lies below them and is no
// route of the hub's is one that the hub does not know yet, and none of a
// custom node's: it may reveal everybody's prompts and files.
var reserved = []string{
	"/internal", "/hub", "/prompt", "/queue", "/history", "/interrupt", "/userdata", "/v2/userdata", "/users", "/api/jobs", "/api/assets",
}

// isPrivate reports whether a path that is no route of the hub may not reach an
// instance whatever its operator says: it is a route for somebody who reads
// paths more loosely, or it is reserved.
func (s *Server) isPrivate(path aiohttp.Path) bool {
	return path.Below(reserved...) || s.rooms.ComfyUI.Resembles(path) || s.rooms.Own.Resembles(path)
}
