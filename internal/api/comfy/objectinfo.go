package comfy

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/catalog"
)

// getObjectInfo answers GET /object_info: all node classes of the fleet. The
// web UI reads it when it loads, and when a user presses R because there is a
// new model.
func (s surveys) getObjectInfo(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	document, ok := s.hub.Classes().All(r.Context(), a.Tenant)
	if !ok {
		s.writeKnown(w, r, "{}", madeHere)
		return
	}
	writeDocument(w, r, document)
}

// getObjectInfoOf answers GET /object_info/{class}: {} for unknown ones.
func (s surveys) getObjectInfoOf(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	writeDocument(w, r, s.hub.Classes().One(r.Context(), a.Tenant, path[0]))
}

func writeDocument(w http.ResponseWriter, r *http.Request, d catalog.Document) {
	w.Header().Set("Etag", d.ETag)
	w.Header().Set("Cache-Control", "no-cache")
	if r.Header.Get("If-None-Match") == d.ETag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	api.WriteJSON(w, http.StatusOK, d.Body())
}
