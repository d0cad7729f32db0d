package comfy

import (
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/refusal"
)

// storedFiles answers the routes of inputs and outputs.
type storedFiles struct{ shared }

// getView answers GET /view.
func (f storedFiles) getView(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	f.hub().View.ServeView(w, r, a.Tenant, a.Turn())
}

// postUpload answers POST /upload/image.
func (f storedFiles) postUpload(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	f.refuseUpload(w, r, f.hub().Uploads.ServeImage(w, r, a.Tenant))
}

// postMask answers POST /upload/mask.
func (f storedFiles) postMask(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	f.refuseUpload(w, r, f.hub().Uploads.ServeMask(w, r, a.Tenant, a.Turn()))
}

// refuseUpload answers an upload for which the tenant has no room left. Web UIs
// show the status with its reason phrase.
func (f storedFiles) refuseUpload(w http.ResponseWriter, r *http.Request, err error) {
	if full, ok := errors.AsType[*files.FullError](err); ok {
		f.Fail(w, r, refusal.Uploads(full.Limit))
	}
}
