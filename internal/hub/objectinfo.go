package hub

import (
	"context"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/catalog"
)

// getObjectInfo answers GET /object_info: all node classes of the fleet. The
// web interface reads it when it loads and when its user presses R, because
// there is a new model: so the instances are asked anew.
func (h *Hub) getObjectInfo(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	if h.catalog() == nil {
		h.writeKnown(w, r, "{}")
		return
	}
	h.dispatch.Refresh(r.Context())
	h.writeDocument(w, r, h.catalog().ObjectInfo(h.uploaded(r.Context(), a.Tenant)))
}

// getObjectInfoOf answers GET /object_info/{class}: {} for unknown ones.
func (h *Hub) getObjectInfoOf(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	h.dispatch.AskClasses(r.Context(), path[:1], time.Now().Add(-h.Settings().CatalogAge), false)
	h.writeDocument(w, r, h.catalog().Class(path[0], h.uploaded(r.Context(), a.Tenant)))
}

// validate checks a prompt against what the fleet can run. What is known of an
// instance's files can be older than they are, so the instances are asked anew
// for the classes of a prompt that names what no list has, before it is refused
// for that. One that is accepted all the same goes to an instance that has it.
func (h *Hub) validate(ctx context.Context, p catalog.Prompt) (*catalog.Catalog, *catalog.Verdict) {
	now := time.Now()
	c := h.catalog()
	verdict := c.Validate(p)
	if len(verdict.Unlisted) == 0 {
		return c, verdict
	}
	whole := verdict.Accepted() && verdict.NodeErrors.Len() == 0
	h.dispatch.AskClasses(ctx, verdict.Unlisted, now, whole)
	if fresh := h.catalog(); fresh != c {
		return fresh, fresh.Validate(p)
	}
	return c, verdict
}
