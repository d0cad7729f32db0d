package comfy

import (
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
)

// storedFiles answers the routes of inputs and outputs.
type storedFiles struct{ shared }

// getView answers GET /view.
func (f storedFiles) getView(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	f.hub.View().ServeView(w, r, a.Tenant, a.Turn())
}

// postUpload answers POST /upload/image.
func (f storedFiles) postUpload(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	f.refuseUpload(w, f.hub.Uploads().ServeImage(w, r, a.Tenant))
}

// postMask answers POST /upload/mask.
func (f storedFiles) postMask(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	f.refuseUpload(w, f.hub.Uploads().ServeMask(w, r, a.Tenant, a.Turn()))
}

// refuseUpload answers an upload for which the tenant has no room left. Web UIs
// show the status with its reason phrase.
func (f storedFiles) refuseUpload(w http.ResponseWriter, err error) {
	if full, ok := errors.AsType[*files.FullError](err); ok {
		f.RefuseFull(w, full.Limit, uploadsFull(full))
	}
}

// uploadsFull is the answer to a tenant that can upload no more.
func uploadsFull(full *files.FullError) api.Error {
	e := api.Error{
		Status: http.StatusInsufficientStorage, Kind: "tenant_inputs_full",
		Message: "Your uploads take all the space that they may",
		Details: "The operator can raise it, or let unused uploads go (input_age).",
	}
	if full.Limit == "input_files" {
		e.Message = "You have uploaded as many files as you may"
	}
	return e
}
