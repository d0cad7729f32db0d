package hub

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/stream"
)

// getSocket answers GET /ws: the client's event stream.
func (h *Hub) getSocket(w http.ResponseWriter, r *http.Request, a asker, _ []string) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		asked := cmp.Or(r.Header.Get("Upgrade"), "None") // as Python prints what is missing
		writeText(w, http.StatusBadRequest, "No WebSocket UPGRADE hdr: "+asked+"\n Can \"Upgrade\" only to \"WebSocket\".")
		return
	}
	if a.client == "" {
		// The client adopts this id and posts under it, so the counts of the
		// socket must be those of the id from the beginning.
		id := uuid.New()
		a.client = hexOf(id)
	}
	h.recent.meet(a, a.client)
	h.missed(r.Context(), stream.Key{Tenant: a.tenant, Client: a.client})
	err := h.streams.Serve(w, r, stream.Ident{Tenant: a.tenant, Client: a.client, Caller: a.caller(), Network: a.network, Live: a.live})
	switch {
	case errors.Is(err, stream.ErrTenantFull):
		h.refuseFull(w, "sockets", hubError{
			status: http.StatusTooManyRequests, kind: "tenant_sockets_full",
			message: "You have too many open sockets", details: "Close some windows.", retryAfter: 5,
		})
	case errors.Is(err, stream.ErrFull):
		writeHubError(w, hubError{
			status: http.StatusServiceUnavailable, kind: "too_many_sockets",
			message: "The hub has too many open sockets", retryAfter: 5,
		})
	case errors.Is(err, stream.ErrClosed):
		writeHubError(w, hubError{
			status: http.StatusServiceUnavailable, kind: "shutting_down",
			message: "The hub is shutting down", retryAfter: 2,
		})
	}
}

// hexOf is an id of 32 hex digits, as ComfyUI mints them.
func hexOf(id uuid.UUID) string { return strings.ReplaceAll(id.String(), "-", "") }
