package comfy

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
)

// putHeld answers PUT /api/etn/image/{id} as the nodes do.
func (f storedFiles) putHeld(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	if api.Climbs(path[0]) || len(path[0]) > api.MaxName {
		api.WriteErrorText(w, http.StatusBadRequest, "Invalid id")
		return
	}
	if f.hub().Held.Has(r.Context(), a.Tenant, path[0]) {
		api.WriteJSON(w, http.StatusOK, []byte(`{"status": "cached"}`))
		return
	}
	limit := f.hub().Settings.MaxUpload
	if r.ContentLength >= limit {
		api.WriteTooLarge(w, limit, r.ContentLength)
		return
	}
	bounded := http.MaxBytesReader(w, r.Body, limit)
	err := f.hub().Held.Put(r.Context(), a.Tenant, path[0], bounded)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		api.WriteTooLarge(w, limit, limit)
	case err != nil:
		f.Fail(w, r, err)
	default:
		api.WriteJSON(w, http.StatusCreated, []byte(`{"status": "success"}`))
	}
}

// getHeld answers GET /api/etn/image/{id}: a picture that the client has put
// there, or one that a node has left in its instance's memory.
func (f storedFiles) getHeld(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	body, kind, size, err := f.hub().Held.Open(r.Context(), a.Tenant, path[0])
	if err == nil {
		writeHeld(w, body, kind, size)
		return
	}
	if api.Climbs(path[0]) {
		api.WriteErrorText(w, http.StatusNotFound, "Image not found")
		return
	}
	for _, client := range f.hub().Instances.Holders(a.Viewer(), f.Recent.Clients(a), path[0]) {
		resp, err := client.Ask(r.Context(), files.HeldPath+url.PathEscape(path[0]), nil)
		if err != nil {
			continue
		}
		if resp.StatusCode == http.StatusOK {
			api.CopyAnswer(w, resp)
			return
		}
		resp.Body.Close()
	}
	api.WriteErrorText(w, http.StatusNotFound, "Image not found")
}

func writeHeld(w http.ResponseWriter, body io.ReadCloser, kind string, size int64) {
	defer body.Close()
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusOK)
	_, _ = io.Copy(w, body) // the visitor may be gone
}
