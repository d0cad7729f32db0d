package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/userdata"
)

// userBlobs is the hub's storage as package userdata needs it.
type userBlobs struct{ *files.Storage }

// Open implements userdata.Storage.
func (b userBlobs) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	body, err := b.Storage.Open(ctx, key, offset, length)
	return body, missing(err)
}

// Stat implements userdata.Storage.
func (b userBlobs) Stat(ctx context.Context, key string) (userdata.Blob, error) {
	blob, err := b.Storage.Stat(ctx, key)
	return userdata.Blob(blob), missing(err)
}

// List implements userdata.Storage.
func (b userBlobs) List(ctx context.Context, prefix string, each func(userdata.Blob) error) error {
	return b.Storage.List(ctx, prefix, func(blob files.Blob) error { return each(userdata.Blob(blob)) })
}

func missing(err error) error {
	if errors.Is(err, files.ErrGone) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

// refuseUserdata answers a user whose tenant can store no more. The web UI
// shows the status with its reason phrase, which says as much.
func (h *Hub) refuseUserdata(w http.ResponseWriter, err error) {
	full := api.Error{
		Status: http.StatusInsufficientStorage, Kind: "tenant_userdata_full",
		Message: "Your settings and workflows take all the space that they may", Details: "Delete some files.",
	}
	if errors.Is(err, userdata.ErrFullFiles) {
		full.Message = "You have as many workflows and folders as you may"
		h.refuseFull(w, "userdata_files", full)
		return
	}
	h.refuseFull(w, "userdata", full)
}

// userFolder is the folder of the user that a request speaks for: the tenant's
// only one, or, where the hub keeps several apart, the one that the header
// Comfy-User names. ok is false for one that is not known.
func (h *Hub) userFolder(r *http.Request, a api.Requester) (folder userdata.Folder, ok bool, err error) {
	if !h.settings().MultiUser {
		return h.users.Folder(a.Tenant, userdata.DefaultUser), true, nil
	}
	id := r.Header.Get("Comfy-User")
	ok, err = h.users.HasUser(r.Context(), a.Tenant, id)
	return h.users.Folder(a.Tenant, id), ok, err
}
