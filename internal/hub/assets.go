package hub

import (
	"net/http"
	"strings"

	"github.com/google/uuid"
)

// assetsDisabled is ComfyUI's own answer where the asset database is off.
// Assets are rows of one instance's database, which the next instance does not
// have, so through a hub it always is.
const assetsDisabled = `{"error": {"code": "SERVICE_DISABLED", "message": "Assets system is disabled. Start the server with --enable-assets to use this feature.", "details": {}}}`

// addAssets adds the routes of the asset API; they exist as written only.
func (h *Hub) addAssets(t *router) {
	for _, pattern := range []string{
		"GET /api/assets", "POST /api/assets", "POST /api/assets/from-hash", "GET /api/tags",
		"GET /api/assets/tags/refine", "POST /api/assets/seed", "GET /api/assets/seed/status",
		"POST /api/assets/seed/cancel", "POST /api/assets/prune",
	} {
		t.handle(pattern, h.noAssets)
	}
	for _, pattern := range []string{
		"GET /api/assets/*", "PUT /api/assets/*", "DELETE /api/assets/*", "GET /api/assets/*/content",
		"POST /api/assets/*/tags", "DELETE /api/assets/*/tags",
	} {
		t.handle(pattern, h.noAsset(func(id string) bool { return uuid.Validate(id) == nil && len(id) == 36 }))
	}
	t.handle("GET /api/assets/hash/*", h.noAsset(func(hash string) bool { return strings.HasPrefix(hash, "blake3:") }))
}

// noAssets refuses, if the version that the hub emulates has assets at all.
func (h *Hub) noAssets(w http.ResponseWriter, r *http.Request, _ asker, _ []string) {
	if !h.dispatch.Version().AtLeast(0, 17, 0) {
		writeNotFound(w, r) // nor is it at an instance: a newer one would show everybody's
		return
	}
	writeJSON(w, http.StatusServiceUnavailable, []byte(assetsDisabled))
}

// noAsset is noAssets for routes whose parameter must have a form.
func (h *Hub) noAsset(fits func(string) bool) handler {
	return func(w http.ResponseWriter, r *http.Request, a asker, path []string) {
		if !fits(path[0]) {
			writeNotFound(w, r)
			return
		}
		h.noAssets(w, r, a, path)
	}
}
