package hub

import (
	"net/http"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// getFolder answers GET /internal/files/{type}: the names of the tenant's
// files that lie directly in that folder, newest first. Widgets that let a
// user pick an earlier output read it.
func (h *Hub) getFolder(w http.ResponseWriter, r *http.Request, a asker, path []string) {
	if !slices.Contains([]string{files.TypeInput, files.TypeOutput, files.TypeTemp}, path[0]) {
		writeErrorText(w, http.StatusBadRequest, "Invalid directory type")
		return
	}
	entries, err := h.store.List(r.Context(), a.tenant, path[0], "")
	if err != nil {
		h.fault(w, r, err)
		return
	}
	version := h.dispatch.Version()
	names := pyjson.Array{}
	for _, e := range entries {
		name := e.Ref.Filename
		if strings.HasPrefix(name, ".") && version.AtLeast(0, 5, 0) {
			continue
		}
		if version.AtLeast(0, 20, 0) {
			name += " [" + path[0] + "]"
		}
		names = append(names, pyjson.String(name))
	}
	writeValue(w, names)
}
