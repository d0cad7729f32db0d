package comfy

import (
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/userdata"
)

// userFolders finds the folder of a request's user.
type userFolders struct{ shared }

// refuseUserdata answers a user whose tenant can store no more. The web UI
// shows the status with its reason phrase, which says as much.
func (u userFolders) refuseUserdata(w http.ResponseWriter, err error) {
	full := api.Error{
		Status: http.StatusInsufficientStorage, Kind: "tenant_userdata_full",
		Message: "Your settings and workflows take all the space that they may", Details: "Delete some files.",
	}
	if errors.Is(err, userdata.ErrFullFiles) {
		full.Message = "You have as many workflows and folders as you may"
		u.RefuseFull(w, "userdata_files", full)
		return
	}
	u.RefuseFull(w, "userdata", full)
}

// userFolder is the folder of the user that a request speaks for: the tenant's
// only one, or, where the hub keeps several apart, the one that the header
// Comfy-User names. ok is false for one that is not known.
func (u userFolders) userFolder(r *http.Request, a api.Requester) (folder userdata.Folder, ok bool, err error) {
	if !u.hub().Settings.MultiUser {
		return u.hub().Users.Folder(a.Tenant, userdata.DefaultUser), true, nil
	}
	id := r.Header.Get("Comfy-User")
	ok, err = u.hub().Users.HasUser(r.Context(), a.Tenant, id)
	return u.hub().Users.Folder(a.Tenant, id), ok, err
}
