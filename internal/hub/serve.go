package hub

import (
	"context"
	"slices"

	"github.com/comfyhub/comfyhub/internal/apikeys"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// Intake returns what takes in the bodies of requests.
func (h *Hub) Intake() *intake.Intake { return h.intake }

// NoteUnavailable counts a request that failed because Redis was away.
func (h *Hub) NoteUnavailable() { h.Metrics.Away() }

// NoteLimited counts a request that was refused because a tenant had reached a limit, by the name
// of the limit.
func (h *Hub) NoteLimited(limit string) { h.Metrics.Limited(limit) }

// Hold takes the slot of a socket; see [stream.Sockets.Hold].
func (h *Hub) Hold(ctx context.Context, id stream.Ident) (context.Context, func(), error) {
	return h.Streams.Sockets.Hold(ctx, id)
}

// Version returns the version of ComfyUI that the whole fleet supports.
func (h *Hub) Version() comfyui.Version { return h.Instances.Version() }

// FindKey returns what the secret of an API key gives access to. The errors are those of
// [apikeys.Keys.Find].
func (h *Hub) FindKey(ctx context.Context, secret string) (apikeys.Access, error) {
	return h.Keys.Find(ctx, secret)
}

// Started reports whether the hub can answer requests.
func (h *Hub) Started() bool { return h.started.Load() }

// NoteLogin records a request by a user who has logged in.
func (h *Hub) NoteLogin() { h.logins.Note() }

// Operates reports whether a tenant is an operator of the hub.
func (h *Hub) Operates(tenant string) bool { return slices.Contains(h.Settings().Operators, tenant) }

// Audit writes a line that says who did what, and what became of it. It must contain neither
// prompts nor secrets.
func (h *Hub) Audit(event string, attrs ...any) { h.Settings().Audit.Info(event, attrs...) }
