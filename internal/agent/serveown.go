package agent

import (
	"encoding/json"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// maxKeptBody bounds a message of a hub, in bytes.
const maxKeptBody = 2 << 20

// serveRestart restarts an instance that a hub has found sick.
func (a *agent) serveRestart(w http.ResponseWriter, r *http.Request, name string) {
	i := a.posted(w, r, name)
	switch {
	case i == nil:
	case i.restart == nil:
		http.Error(w, "this agent has no --restart-command", http.StatusNotFound)
	default:
		if err := i.restart.start(); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	}
}

// serveKept notes which output files of an instance a hub keeps.
func (a *agent) serveKept(w http.ResponseWriter, r *http.Request, name string) {
	i := a.posted(w, r, name)
	if i == nil {
		return
	}
	if i.tidier == nil {
		http.Error(w, "this agent has no --output-dir", http.StatusNotFound)
		return
	}
	var kept comfyui.KeptFiles
	body := http.MaxBytesReader(w, r.Body, maxKeptBody)
	if err := json.NewDecoder(body).Decode(&kept); err != nil || len(kept.Files) > comfyui.MaxKept {
		http.Error(w, "cannot be read, or too much", http.StatusBadRequest)
		return
	}
	if err := i.tidier.take(kept.Files); err != nil {
		a.log.Warn("cannot write the list of files that the hub keeps", "instance", i.name, "error", err)
		http.Error(w, "cannot be written", http.StatusInternalServerError)
	}
}

// posted returns the instance to which something was posted, nil if the request has been
// answered with an error.
func (a *agent) posted(w http.ResponseWriter, r *http.Request, name string) *instance {
	i := a.find(name)
	switch {
	case i == nil:
		http.NotFound(w, r)
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "POST only", http.StatusMethodNotAllowed)
	default:
		return i
	}
	return nil
}
