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
	document, ok := s.hub().Classes.All(r.Context(), a.Tenant)
	if !ok && !s.isKnown(r, madeHere) {
		if err := s.hub().Classes.Await(r.Context(), a.Share()); err != nil {
			s.Fail(w, r, err)
			return
		}
		document, ok = s.hub().Classes.All(r.Context(), a.Tenant)
	}
	if !ok {
		s.writeKnown(w, r, "{}", madeHere)
		return
	}
	s.writeDocument(w, r, a, document)
}

// getObjectInfoOf answers GET /object_info/{class}: {} for unknown ones.
func (s surveys) getObjectInfoOf(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	if err := s.hub().Classes.Await(r.Context(), a.Share()); err != nil {
		s.Fail(w, r, err)
		return
	}
	s.writeDocument(w, r, a, s.hub().Classes.One(r.Context(), a.Tenant, path[0]))
}

// writeDocument sends a document. One that is made for the caller, some megabytes, waits
// outside of memory while the caller does not read.
func (s surveys) writeDocument(w http.ResponseWriter, r *http.Request, a api.Requester, d catalog.Document) {
	w.Header().Set("Etag", d.ETag)
	w.Header().Set("Cache-Control", "no-cache")
	if r.Header.Get("If-None-Match") == d.ETag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if body, ok := d.Shared(); ok {
		api.WriteJSON(w, http.StatusOK, body)
		return
	}
	buffer := s.Intake.NewBuffer(a.Share())
	body := buffer.Take()
	defer body.Close()
	if _, err := d.WriteTo(buffer); err != nil {
		s.RefuseBody(w, r, a.Share(), api.SmallBody, err)
		return
	}
	writeJSONBody(w, body)
}
