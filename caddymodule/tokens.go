package caddymodule

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/machines"
)

// machineToken is an entry of GET /comfyhub/tokens.
type machineToken struct {
	Machine string `json:"machine"`
	// Issued is in Unix seconds.
	Issued int64 `json:"issued"`
}

func serveTokens(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	list, err := h.Machines.List(r.Context())
	if err != nil {
		return unavailable(err)
	}
	all := make([]machineToken, len(list))
	for n, m := range list {
		all[n] = machineToken{m.Name, m.Issued.Unix()}
	}
	return answer(w, all)
}

func serveIssueToken(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	token, err := h.Operator.IssueToken(r.Context(), r.URL.Query().Get("machine"))
	switch {
	case errors.Is(err, fleet.ErrName):
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: fmt.Errorf("machine: %w", err)}
	case errors.Is(err, machines.ErrFull):
		return caddy.APIError{HTTPStatus: http.StatusInsufficientStorage, Err: err}
	case err != nil:
		return unavailable(err)
	}
	w.Header().Set("Cache-Control", "no-store")
	return answer(w, map[string]any{"token": token})
}

func serveRevokeToken(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("machine")
	had, err := h.Operator.RevokeToken(r.Context(), name)
	switch {
	case err != nil:
		return unavailable(err)
	case !had:
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("no machine %q has a token", name)}
	}
	return answer(w, map[string]any{"machine": name})
}
