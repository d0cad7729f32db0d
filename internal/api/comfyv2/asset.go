package comfyv2

import (
	"errors"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/refusal"
)

// assetValue is an asset as its owner sees it.
func assetValue(a api.Requester, asset files.Asset) *pyjson.Object {
	return object(
		"id", pyjson.String(asset.ID),
		"hash", pyjson.String(asset.Hash),
		"size_bytes", pyjson.Int(asset.Size),
		"content_type", pyjson.String(files.ContentType(asset.Name)),
		"file_path", pyjson.String(asset.Name),
		"created_at", moment(asset.Created),
		"url", contentURL(a, asset.ID),
		"url_expires_at", moment(time.Now().Add(linkLife)),
	)
}

// writeCreated answers with an asset that was asked to be there.
func writeCreated(w http.ResponseWriter, a api.Requester, asset files.Asset, created bool) {
	shown, status := assetValue(a, asset), http.StatusOK
	if created {
		status = http.StatusCreated
	}
	shown.Set("created_new", pyjson.Bool(created))
	api.WriteJSON(w, status, pyjson.Strict(pyjson.Marshal(shown)))
}

// postAsset answers POST /api/v2/assets.
func (o assets) postAsset(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	unfit := func(message string) { refuse(w, http.StatusUnprocessableEntity, codeRequest, message) }
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "multipart/form-data" {
		unfit("The body must be multipart/form-data.")
		return
	}
	arrived, err := o.hub().Uploads.ReceiveAsset(w, r)
	if err != nil {
		o.refuseUpload(w, r, err)
		return
	}
	if arrived == nil {
		unfit("The field 'file' is missing.")
		return
	}
	defer arrived.Close()
	name, why := nameOf(arrived.Path)
	switch {
	case why != "":
		unfit(why)
		return
	case arrived.Expected != "" && !strings.EqualFold(strings.TrimSpace(arrived.Expected), arrived.Hash):
		refuse(w, http.StatusConflict, codeHash, "The hash is not that of the bytes that have arrived.")
		return
	}
	asset, created, err := o.hub().Uploads.KeepAsset(r.Context(), a.Tenant, name, arrived)
	if err != nil {
		o.refuseUpload(w, r, err)
		return
	}
	writeCreated(w, a, asset, created)
}

// refuseUpload answers an upload that was not taken.
func (o assets) refuseUpload(w http.ResponseWriter, r *http.Request, err error) {
	if full, ok := errors.AsType[*files.FullError](o.hub().Uploads.Refuse(w, r, err)); ok {
		o.Fail(w, r, refusal.OfJobs(refusal.Uploads(full.Limit)))
	}
}

// nameOf is the name of the file that file_path means, or why it cannot be one. Folders are left
// out: an asset is found by its id.
func nameOf(filePath string) (name, why string) {
	filePath = strings.TrimSpace(strings.ReplaceAll(filePath, `\`, "/"))
	switch first, _, folders := strings.Cut(filePath, "/"); {
	case filePath == "":
		return "", "The field 'file_path' is missing."
	case strings.HasPrefix(filePath, "/"), strings.HasSuffix(filePath, "/"), strings.Contains("/"+filePath+"/", "/../"), strings.ContainsFunc(filePath, unicode.IsControl), !utf8.ValidString(filePath):
		return "", "'file_path' must be a relative path of a file, without '..'."
	case folders && first != "input":
		return "", "'file_path' must be a name, or begin with 'input/'. Models are files of the servers: a fleet takes none by upload."
	}
	return path.Base(filePath), ""
}

// postFromHash answers POST /api/v2/assets/from-hash.
func (o assets) postFromHash(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	v, body, ok := o.readJSON(w, r, a, api.SmallBody)
	if !ok {
		return
	}
	defer body.Close()
	asked, _ := v.(*pyjson.Object)
	hash, isText := pyjson.Value(nil), false
	if hash, ok = asked.Get("hash"); ok {
		_, isText = hash.(pyjson.String)
	}
	if !isText {
		refuse(w, http.StatusUnprocessableEntity, codeRequest, "'hash' is missing.")
		return
	}
	asset, err := o.byHash(r, a, asked.String("hash"))
	if err != nil {
		o.failAsset(w, r, err, codeNoBlob)
		return
	}
	writeCreated(w, a, asset, false)
}

// postFromPath answers POST /api/v2/assets/from-path, which is for files on the disk of the one
// server that the original stands before.
func (o assets) postFromPath(w http.ResponseWriter, _ *http.Request, _ api.Requester, _ []string) {
	refuse(w, http.StatusUnprocessableEntity, codeRequest, "A hub reads no files of its servers' disks. Upload the file instead.")
}

// getByHash answers HEAD and GET /api/v2/assets/by-hash/{hash}.
func (o assets) getByHash(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	asset, err := o.byHash(r, a, path[0])
	if err != nil {
		o.failAsset(w, r, err, codeNoBlob)
		return
	}
	api.WriteDetail(w, assetValue(a, asset))
}

// byHash finds the requester's asset with a hash.
func (o assets) byHash(r *http.Request, a api.Requester, hash string) (files.Asset, error) {
	id, ok := files.AssetID(hash)
	if !ok {
		return files.Asset{}, files.ErrNotFound
	}
	asset, err := o.hub().Uploads.FindAsset(r.Context(), a.Tenant, id)
	if err == nil && !strings.EqualFold(asset.Hash, hash) {
		err = files.ErrNotFound
	}
	return asset, err
}

// failAsset answers a request about an asset that cannot be shown.
func (o assets) failAsset(w http.ResponseWriter, r *http.Request, err error, code string) {
	if errors.Is(err, files.ErrNotFound) || errors.Is(err, links.ErrNoFile) {
		refuse(w, http.StatusNotFound, code, "There is no such asset, or it is not yours.")
		return
	}
	o.Fail(w, r, err)
}

// getAsset answers GET /api/v2/assets/{id}, of an upload or of an output.
func (o assets) getAsset(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	asset, err := o.hub().Uploads.FindAsset(r.Context(), a.Tenant, path[0])
	if err == nil {
		api.WriteDetail(w, assetValue(a, asset))
		return
	}
	jobID, ref, ok := readOutputID(path[0])
	if !ok || !errors.Is(err, files.ErrNotFound) {
		o.failAsset(w, r, err, codeNotFound)
		return
	}
	f, err := o.hub().Links.File(r.Context(), a.Tenant, ref)
	if err != nil {
		o.failAsset(w, r, err, codeNotFound)
		return
	}
	shown := assetValue(a, files.Asset{ID: path[0], Name: f.Ref.Filename, Size: f.Size, Created: f.Modified})
	shown.Set("hash", pyjson.Null{})
	shown.Set("job_id", pyjson.String(jobID))
	api.WriteDetail(w, shown)
}

// deleteAsset answers DELETE /api/v2/assets/{id}. Outputs go with their jobs.
func (o assets) deleteAsset(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	if err := o.hub().Uploads.DeleteAsset(r.Context(), a.Tenant, path[0]); err != nil {
		o.failAsset(w, r, err, codeNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// getContent answers GET /api/v2/assets/{id}/content, with Range and ETag.
func (o assets) getContent(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	code := codeNotFound
	asset, err := o.hub().Uploads.FindAsset(r.Context(), a.Tenant, path[0])
	ref := asset.Ref
	if errors.Is(err, files.ErrNotFound) {
		if _, out, ok := readOutputID(path[0]); ok {
			ref, code, err = out, codeGone, nil
		}
	}
	if err == nil {
		err = o.hub().View.ServeFile(w, r, a.Tenant, ref)
	}
	if errors.Is(err, files.ErrGone) || errors.Is(err, files.ErrChanged) {
		code, err = codeGone, files.ErrNotFound
	}
	if err != nil {
		o.failAsset(w, r, err, code)
	}
}
