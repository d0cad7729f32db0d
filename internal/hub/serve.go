package hub

import (
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// Table has ComfyUI's routes. The room that answers them adds them before the
// first request.
func (h *Hub) Table() *api.Router { return h.table }

// Requests reads the requests of all rooms.
func (h *Hub) Requests() *api.Requests { return h.requests }

// Recent are the client ids that were used lately from each place.
func (h *Hub) Recent() *api.RecentClients { return &h.recent }

// Streams are the event streams of all clients. They are there after the first
// Start.
func (h *Hub) Streams() *stream.Streams { return h.streams }

// Submitter takes prompts. It is there after the first Start.
func (h *Hub) Submitter() *Submitter { return h.submitter }

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
