package comfy

import (
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/api"
)

// Assets are rows of one instance's database, which the next instance does not have, so
// through a hub they are always off. assetsDisabled is ComfyUI's own answer where they are.
// noAssetsHere is the hub's since they are on by default: nobody can switch them on here.
const (
	assetsDisabled = `{"error": {"code": "SERVICE_DISABLED", "message": "Assets system is disabled. Start the server with --enable-assets to use this feature.", "details": {}}}`
	noAssetsHere   = `{"error": {"code": "SERVICE_DISABLED", "message": "Assets system is disabled: each server of this hub has assets of its own. Use /upload/image, /view and /history instead.", "details": {}}}`
)

// assets answers the routes of the asset API.
type assets struct{ shared }

// addRoutes adds the routes of the asset API; they exist as written only.
func (s assets) addRoutes(t *api.Router) {
	for _, pattern := range []string{
		"GET /api/assets", "POST /api/assets", "POST /api/assets/from-hash", "GET /api/tags",
		"GET /api/assets/tags/refine", "POST /api/assets/seed", "GET /api/assets/seed/status",
		"POST /api/assets/seed/cancel", "POST /api/assets/prune",
	} {
		t.Handle(pattern, s.noAssets)
	}
	for _, pattern := range []string{
		"GET /api/assets/*", "PUT /api/assets/*", "DELETE /api/assets/*", "GET /api/assets/*/content",
		"POST /api/assets/*/tags", "DELETE /api/assets/*/tags",
	} {
		t.Handle(pattern, s.noAsset(func(id string) bool { return uuid.Validate(id) == nil && len(id) == 36 }))
	}
	t.Handle("GET /api/assets/hash/*", s.noAsset(func(hash string) bool { return strings.HasPrefix(hash, "blake3:") }))
}

// noAssets refuses, if the version that the hub emulates has assets at all.
func (s assets) noAssets(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
	if !s.hub().Instances.Version().AtLeast(0, 17, 0) {
		api.WriteNotFound(w, r) // nor is it at an instance: a newer one would show everybody's
		return
	}
	text := assetsDisabled
	if s.onByDefault() {
		text = noAssetsHere
	}
	api.WriteJSON(w, http.StatusServiceUnavailable, []byte(text))
}

// onByDefault reports whether the version that the hub emulates has assets without being told.
func (s assets) onByDefault() bool { return s.hub().Instances.Version().AtLeast(0, 38, 0) }

// noAsset is noAssets for routes whose parameter must have a form.
func (s assets) noAsset(fits func(string) bool) api.Handler {
	return func(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
		if !fits(path[0]) {
			api.WriteNotFound(w, r)
			return
		}
		s.noAssets(w, r, a, path)
	}
}
