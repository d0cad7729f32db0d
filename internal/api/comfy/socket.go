package comfy

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// getSocket answers GET /ws: the client's event stream.
func (c *Room) getSocket(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		asked := cmp.Or(r.Header.Get("Upgrade"), "None") // as Python prints what is missing
		api.WriteText(w, http.StatusBadRequest, "No WebSocket UPGRADE hdr: "+asked+"\n Can \"Upgrade\" only to \"WebSocket\".")
		return
	}
	if a.Client == "" {
		// The client adopts this id and posts under it, so the counts of the
		// socket must be those of the id from the beginning.
		id := uuid.New()
		a.Client = hexOf(id)
	}
	c.Recent.Note(a, a.Client)
	c.hub().Ends.TellMissed(r.Context(), stream.KeyOf(a.Requester()))
	err := c.hub().Streams.Sockets.Serve(w, r, stream.Ident{Requester: a.Requester(), Network: a.Network, Share: a.Share(), Live: a.Live, Until: a.Until})
	refuseSocket(c.Requests, w, err)
}

// refuseSocket answers a request for a socket that there is no room for. Of any other
// error there is nothing left to answer.
func refuseSocket(q *api.Requests, w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, stream.ErrTenantFull):
		q.RefuseFull(w, "sockets", api.Error{
			Status: http.StatusTooManyRequests, Kind: "tenant_sockets_full",
			Message: "You have too many open sockets", Details: "Close some windows.", RetryAfter: 5,
		})
	case errors.Is(err, stream.ErrFull):
		api.WriteError(w, api.Error{
			Status: http.StatusServiceUnavailable, Kind: "too_many_sockets",
			Message: "The hub has too many open sockets", RetryAfter: 5,
		})
	case errors.Is(err, stream.ErrCutOff):
		api.WriteError(w, api.Error{
			Status: http.StatusServiceUnavailable, Kind: "queue_unavailable",
			Message: "This hub does not reach the queue", Details: "Other hubs do: connect to one of them.", RetryAfter: 5,
		})
	case errors.Is(err, stream.ErrClosed):
		api.WriteError(w, api.Error{
			Status: http.StatusServiceUnavailable, Kind: "shutting_down",
			Message: "The hub is shutting down", RetryAfter: 2,
		})
	}
}

// getFeatures answers GET /features.
func (c *Room) getFeatures(w http.ResponseWriter, _ *http.Request, _ api.Requester, _ []string) {
	api.WriteJSON(w, http.StatusOK, c.hub().Instances.Features())
}

// hexOf is an id of 32 hex digits, as ComfyUI mints them.
func hexOf(id uuid.UUID) string { return strings.ReplaceAll(id.String(), "-", "") }
