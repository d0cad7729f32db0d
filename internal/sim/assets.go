package sim

import (
	"crypto/sha256"
	"net/http"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// assetsOn reports whether the instance registers its files as assets.
func (p *process) assetsOn() bool { return p.feat.assets && !p.cfg.DisableAssets }

// noAssets answers the routes of assets while they are on: the listings are empty, as if no
// scan had ended yet.
func (p *process) noAssets(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /api/assets":
		answerJSON(w, http.StatusOK, dict("assets", list(), "total", 0, "has_more", false))
	case "GET /api/tags":
		answerJSON(w, http.StatusOK, dict("tags", list(), "total", 0, "has_more", false))
	case "GET /api/assets/tags/refine":
		answerJSON(w, http.StatusOK, dict("tag_counts", dict()))
	case "GET /api/assets/seed/status":
		answerJSON(w, http.StatusOK, dict("state", "IDLE", "progress", nil, "errors", list()))
	case "POST /api/assets/seed":
		answerJSON(w, http.StatusAccepted, dict("status", "started"))
	case "POST /api/assets/seed/cancel":
		answerJSON(w, http.StatusOK, dict("status", "idle"))
	case "POST /api/assets/prune":
		answerJSON(w, http.StatusOK, dict("status", "completed", "marked", 0))
	default:
		answerJSON(w, http.StatusNotFound, dict("error", dict("code", "ASSET_NOT_FOUND", "message", "no such asset", "details", dict())))
	}
}

// assetID is the id of a file among the assets, for one prompt.
func assetID(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		h.Write([]byte(text + "\x00"))
	}
	id, _ := uuid.FromBytes(h.Sum(nil)[:16])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id.String()
}

// shown returns what a node shows as the client and the history see it: files have the ids
// of their assets.
func (r *run) shown(ui *pyjson.Object) *pyjson.Object {
	if ui == nil || !r.proc.assetsOn() {
		return ui
	}
	out := &pyjson.Object{}
	for key, v := range ui.All() {
		entries, isList := v.(pyjson.Array)
		if !isList {
			out.Set(key, v)
			continue
		}
		named := make(pyjson.Array, len(entries))
		for i, entry := range entries {
			named[i] = r.asset(entry)
		}
		out.Set(key, named)
	}
	return out
}

// asset adds the asset's ids to an entry that is a file.
func (r *run) asset(entry pyjson.Value) pyjson.Value {
	file, ok := entry.(*pyjson.Object)
	if !ok || !file.Has("filename") || !file.Has("type") {
		return entry
	}
	id := assetID(r.id, file.String("type"), file.String("subfolder"), file.String("filename"))
	out := &pyjson.Object{}
	for key, v := range file.All() {
		out.Set(key, v)
	}
	out.Set("id", pyjson.String(id))
	if mediaKind(file.String("filename")) == "image" { // its own preview; others have one once somebody makes it
		out.Set("preview_id", pyjson.String(id))
	}
	return out
}

// uploadedAsset is the asset in the answer to an upload.
func uploadedAsset(name, subfolder, kind string, content []byte) *pyjson.Object {
	return dict("id", assetID(kind, subfolder, name), "name", name, "asset_hash", nil, "size", len(content),
		"mime_type", mimeByName(name), "tags", list(kind))
}
