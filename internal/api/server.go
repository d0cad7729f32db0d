package api

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"sync"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/pyjson"
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
	// Audit writes a line to the audit log. It must contain neither prompts nor secrets.
	Audit(event string, attrs ...any)
	// FindKey returns what the secret of an API key gives; see [apikeys.Keys.Find].
	FindKey(ctx context.Context, secret string) (apikeys.Access, error)
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
	// Below are the beginnings of paths whose errors have the room's own shape, also those that
	// come before any route, such as that of a key that is not valid.
	Below []string
	// Translate tells such an error, whatever shape it has, as the room does.
	Translate func(status int, answer []byte) *pyjson.Object
}

// Server answers requests: it refuses those that no room may see, finds out who
// makes the others, and hands them to their rooms.
type Server struct {
	core     Core
	requests *Requests
	rooms    Rooms
	door     doorkeeper
	squeezed compressed
	// proxied is done once a proxy was noticed that hides who asks.
	proxied sync.Once
	// hostless is done once a page was refused that a proxy may have made look foreign.
	hostless sync.Once
}

// NewServer makes the server of a hub.
func NewServer(core Core, requests *Requests, rooms Rooms) *Server {
	return &Server{core: core, requests: requests, rooms: rooms, door: doorkeeper{find: core.FindKey, audit: core.Audit, requests: requests}}
}

// Serve answers one request of ComfyUI's HTTP and WebSocket API, or of the
// hub's own under /hub/.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, v Visitor) {
	w = asContent(w)
	w.Header().Set(comfyui.HubHeader, s.core.Release())
	path, noPath := readPath(r)
	w, told := s.inDialect(w, path)
	defer told()
	if !s.core.Started() {
		WriteError(w, Error{
			Status: http.StatusServiceUnavailable, Kind: "starting",
			Message: "The hub is starting", RetryAfter: 1,
		})
		return
	}
	if noPath == nil {
		r = WithPath(r, path)
	}
	if v.OperatorsSite {
		v.CORS = ""
		isolate(w.Header())
	}
	if v.CORS != "" {
		w = withCORS(w, r, v.CORS, s.core.Version(), v.Keys)
	}
	if v.Prefix != "" {
		w = withPrefix(w, v.Prefix)
	}
	if s.refuseStrangers(w, r, v) {
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
	choice := s.choose(r, v, path)
	in := identified{Request: r, Visitor: v}
	if !choice.open {
		var ok bool
		if in, ok = s.door.admit(w, r, v); !ok {
			return
		}
		r, v = in.Request, in.Visitor
	}
	a := RequesterOf(r, v)
	a.Operator = a.Operator || s.core.Operates(a.Tenant)
	r, done := in.restrict(&a)
	defer done()
	a.demote(in, choice)
	s.requests.Recent.confirm(a)
	if v.Proxied && !a.Login {
		s.proxied.Do(func() {
			s.requests.Log().Warn("requests come through a proxy that the server's trusted_proxies does not name, or names without trusted_proxies_strict: " +
				"clients that send neither a client id nor the hub's cookie cannot be told apart, so their interrupts and clears do nothing")
		})
	}
	if refuseLong(w, r, v, a) {
		return
	}
	r, arrived, err := s.requests.Intake.Guard(w, r, a.Share())
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
	w, sent := s.squeezed.bound(w, r, a.Share())
	defer sent()
	choice.answer(w, r, a)
}

// inDialect gives requests for a path a writer that tells errors as the path's room does, if it
// has a way of its own. told must be called after the answer.
func (s *Server) inDialect(w http.ResponseWriter, path aiohttp.Path) (translated http.ResponseWriter, told func()) {
	for _, room := range s.rooms.Optional {
		if room.Translate != nil && room.On() && path.Below(room.Below...) {
			e := &ErrorWriter{ResponseWriter: w, Translate: room.Translate}
			return e, e.close
		}
	}
	return w, func() {}
}

// answerer answers one request.
type answerer func(w http.ResponseWriter, r *http.Request, a Requester)

// choice is who answers a request.
type choice struct {
	answer answerer
	// open says that the answerer lets callers in by itself.
	open bool
	// reads says that nothing is changed.
	reads bool
}

// choose finds who answers a request.
func (s *Server) choose(r *http.Request, v Visitor, path aiohttp.Path) choice {
	if v.OperatorsSite {
		return s.siteChoice(r, v, path)
	}
	answer, f := s.answerOf(r, path)
	return choice{answer: answer, open: f.open, reads: f.reads || IsRead(r)}
}

// answerOf finds who answers a request, and what is special about the route.
func (s *Server) answerOf(r *http.Request, path aiohttp.Path) (answer answerer, f found) {
	for router, yields := range s.hubRouters() {
		f, values, allowed := router.find(r.Method, path)
		switch {
		case f.Handler != nil:
			return s.answerer(f, path, values), f
		case allowed != nil && !yields:
			return notAllowed(allowHeader(allowed)), found{}
		}
	}
	f, values, allowed := s.rooms.ComfyUI.find(r.Method, path)
	switch {
	case f.Handler != nil:
		return s.answerer(f, path, values), f
	case allowed == nil:
		return func(w http.ResponseWriter, r *http.Request, a Requester) { s.forward(w, r, a, path) }, found{}
	case isInternal(path):
		return notAllowed(listed(allowed)), found{}
	case IsRead(r): // as ComfyUI's catch-all static route does
		return func(w http.ResponseWriter, r *http.Request, _ Requester) { WriteNotFound(w, r) }, found{}
	}
	return notAllowed(allowHeader(allowed)), found{}
}

// answerer is what was found for a path with these values.
func (s *Server) answerer(f found, path aiohttp.Path, values []string) answerer {
	answer := func(w http.ResponseWriter, r *http.Request, a Requester) { f.Handler(w, r, a, values) }
	if f.audited {
		return s.audited(f, path, answer)
	}
	return answer
}

// notAllowed answers a method that a path does not have.
func notAllowed(allow string) answerer {
	return func(w http.ResponseWriter, _ *http.Request, _ Requester) { writeNotAllowed(w, allow) }
}

// hubRouters are the routers that come before ComfyUI's, each with whether it yields to
// later ones.
func (s *Server) hubRouters() iter.Seq2[*Router, bool] {
	return func(yield func(*Router, bool) bool) {
		if !yield(s.rooms.Own, false) {
			return
		}
		for _, room := range s.rooms.Optional {
			if room.On() && !yield(room.Router, room.Yields) {
				return
			}
		}
	}
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
	"/internal", "/hub", "/prompt", "/queue", "/history", "/interrupt", "/userdata", "/v2/userdata", "/users", "/api/jobs", "/api/assets", "/v2/jobs", "/v2/assets", "/v2/health",
}

// isPrivate reports whether a path that is no route of the hub may not reach an
// instance whatever its operator says: it is a route for somebody who reads
// paths more loosely, or it is reserved.
func (s *Server) isPrivate(path aiohttp.Path) bool {
	return path.Below(reserved...) || s.rooms.ComfyUI.Resembles(path) || s.rooms.Own.Resembles(path)
}
