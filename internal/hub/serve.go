package hub

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/stream"
	"github.com/comfyhub/comfyhub/internal/submit"
)

// Intake returns what takes in the bodies of requests.
func (h *Hub) Intake() *intake.Intake { return h.intake }

// NoteUnavailable counts a request that failed because Redis was away.
func (h *Hub) NoteUnavailable() { h.measure.Away() }

// NoteLimited counts a request that was refused because a tenant had reached a limit, by the name
// of the limit.
func (h *Hub) NoteLimited(limit string) { h.measure.Limited(limit) }

// Streams returns the event streams of all clients. It is available after the first Start.
func (h *Hub) Streams() *stream.Streams { return h.streams }

// Submitter takes prompts. It is available after the first Start.
func (h *Hub) Submitter() *submit.Submitter { return h.submitter }

// Canceller ends jobs. It is available after the first Start.
func (h *Hub) Canceller() *submit.Canceller { return h.canceller }

// Started reports whether the hub can answer requests.
func (h *Hub) Started() bool { return h.started.Load() }

// NoteLogin records a request by a user who has logged in.
func (h *Hub) NoteLogin() { h.logins.Note() }

// Operates reports whether a tenant is an operator of the hub.
func (h *Hub) Operates(tenant string) bool { return slices.Contains(h.Settings().Operators, tenant) }

// Live returns nil while the process works at all.
func (h *Hub) Live() error { return nil }

// Callbacks tells users' programs what becomes of their jobs. It is available after the first
// Start.
func (h *Hub) Callbacks() *submit.Callbacks { return h.callbacks }
