package hub

import (
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// routes are what the hub answers itself. Each exists bare and under /api.
// Any other path goes to an instance.
func (h *Hub) routes() *api.Router {
	t := &api.Router{}
	t.Both("GET /view", h.getView)
	t.Both("POST /upload/image", h.postUpload)
	t.Both("POST /upload/mask", h.postMask)
	t.Both("PUT "+files.HeldPath+"*", h.putHeld)
	t.Both("GET "+files.HeldPath+"*", h.getHeld)
	return t
}

// Table has ComfyUI's routes. Rooms that answer some of them add theirs before
// the first request.
func (h *Hub) Table() *api.Router { return h.table }

// Requests reads the requests of all rooms.
func (h *Hub) Requests() *api.Requests { return h.requests }

// Recent are the client ids that were used lately from each place.
func (h *Hub) Recent() *api.RecentClients { return &h.recent }

// Streams are the event streams of all clients. They are there after the first
// Start.
func (h *Hub) Streams() *stream.Streams { return h.streams }

// Canceller ends jobs. It is there after the first Start.
func (h *Hub) Canceller() *Canceller { return h.canceller }

// Shows reports whether the client of a running job is being shown its messages.
func (h *Hub) Shows(j job.Job) bool {
	return h.streams.Shows(stream.Key{Tenant: j.Tenant, Client: j.Client}, j.Key)
}

// Started reports whether the hub can answer requests.
func (h *Hub) Started() bool { return h.started.Load() }

// NoteLogin tells of a request by somebody who has logged in.
func (h *Hub) NoteLogin() { h.logins.note() }
