package comfy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// getFolder answers GET /internal/files/{type}: the names of the files directly
// in that folder, newest first. Widgets that let a user pick an earlier output
// read it, and the side bar's list of imported files.
func (f storedFiles) getFolder(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	if !slices.Contains([]string{job.TypeInput, job.TypeOutput, job.TypeTemp}, path[0]) {
		api.WriteErrorText(w, http.StatusBadRequest, "Invalid directory type")
		return
	}
	found, err := f.hub().Folders.List(r.Context(), a.Tenant, path[0])
	if err != nil {
		f.Fail(w, r, err)
		return
	}
	version := f.hub().Instances.Version()
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
