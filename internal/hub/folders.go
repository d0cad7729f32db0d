package hub

import (
	"net/http"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// getFolder answers GET /internal/files/{type}: the names of the tenant's
// files that lie directly in that folder, newest first. Widgets that let a
// user pick an earlier output read it, and the side bar's list of imported
// files. Where nobody logs in the inputs that lie on an instance only are there
// as well, after the others: LoadImage offers them, and /view shows them.
func (h *Hub) getFolder(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	if !slices.Contains([]string{job.TypeInput, job.TypeOutput, job.TypeTemp}, path[0]) {
		api.WriteErrorText(w, http.StatusBadRequest, "Invalid directory type")
		return
	}
	entries, err := h.store.List(r.Context(), a.Tenant, path[0], "")
	if err != nil {
		h.requests.Fail(w, r, err)
		return
	}
	var found []string
	for _, e := range entries {
		found = append(found, e.Ref.Filename)
	}
	if path[0] == job.TypeInput && a.Tenant == job.DefaultTenant && !h.logins.lately() {
		for _, name := range h.stock.inputs() {
			if !strings.ContainsRune(name, '/') && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	version := h.dispatch.Version()
	names := pyjson.Array{}
	for _, name := range found {
		if strings.HasPrefix(name, ".") && version.AtLeast(0, 5, 0) {
			continue
		}
		if version.AtLeast(0, 20, 0) {
			name += " [" + path[0] + "]"
		}
		names = append(names, pyjson.String(name))
	}
	api.WriteValue(w, names)
}
