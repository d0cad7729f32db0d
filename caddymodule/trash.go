package caddymodule

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/caddyserver/caddy/v2"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// shownTrash is how many names GET /comfyhub/trash returns by default.
const shownTrash = 100

// trashed is a name in the trash as the admin endpoint shows it. Times are Unix seconds.
type trashed struct {
	ID        string `json:"id"`
	Tenant    string `json:"tenant"`
	Type      string `json:"type"`
	Subfolder string `json:"subfolder"`
	Filename  string `json:"filename"`
	Size      int64  `json:"size"`
	Why       string `json:"why"`
	Since     int64  `json:"since"`
	Until     int64  `json:"until"`
}

func trashedOf(t files.Trashed) trashed {
	return trashed{
		ID: t.ID, Tenant: t.Tenant, Type: t.Ref.Type, Subfolder: t.Ref.Subfolder, Filename: t.Ref.Filename,
		Size: t.Size, Why: t.Why, Since: t.Since.Unix(), Until: t.Until.Unix(),
	}
}

// serveTrash answers with the newest names in the trash.
func serveTrash(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	limit, query := shownTrash, r.URL.Query()
	if query.Has("limit") {
		n, err := strconv.Atoi(query.Get("limit"))
		if err != nil || n < 1 {
			return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: errors.New("limit must be a positive number")}
		}
		limit = n
	}
	newest, all, err := files.NewTrash(h.Store).List(r.Context(), query.Get("tenant"), limit)
	if err != nil {
		return unavailable(err)
	}
	shown := make([]trashed, len(newest))
	for n, t := range newest {
		shown[n] = trashedOf(t)
	}
	return answer(w, map[string]any{"all": all, "trash": shown})
}

// serveTakeBack takes a name back.
func serveTakeBack(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	if query.Get("tenant") == "" || query.Get("id") == "" {
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: errors.New("give tenant=NAME and id=ID")}
	}
	back, err := files.NewTrash(h.Store).TakeBack(r.Context(), query.Get("tenant"), query.Get("id"))
	switch {
	case errors.Is(err, files.ErrNotInTrash):
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
	case errors.Is(err, files.ErrTaken):
		return caddy.APIError{HTTPStatus: http.StatusConflict, Err: err}
	case err != nil:
		return unavailable(err)
	}
	return answer(w, trashedOf(back))
}
