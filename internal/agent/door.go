package agent

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/tunnel"
)

// door answers the hubs, and nobody else: it passes their requests on to the servers, and takes
// their orders.
type door struct {
	servers *servers
	log     *slog.Logger
	serve   string // as configured
	scheme  string
	fetches fetches
	reports http.HandlerFunc // in a tunnel; nil without one
}

// serveHTTP forwards /i/NAME/... to an instance and handles /restart/NAME and /kept/NAME. Paths
// are compared as received, including escapes: a mux would clean them, and ComfyUI
// distinguishes paths that it would make equal.
func (d *door) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		// No hub sends these. On loopback there is no other sign that a web page is
		// attacking an instance that trusts its neighbours.
		http.Error(w, "browsers have no business here", http.StatusForbidden)
		return
	}
	if d.scheme == "http" && !d.ownHost(r.Host) {
		// A name of somebody else's that was made to lead here (DNS rebinding).
		http.Error(w, "this is not the host of an agent without a gossip key", http.StatusForbidden)
		return
	}
	path := r.URL.EscapedPath()
	if d.reports != nil && path == tunnel.ReportsPath {
		d.reports(w, r)
		return
	}
	if name, ok := strings.CutPrefix(path, comfyui.RestartPath); ok {
		d.serveRestart(w, r, name)
		return
	}
	if name, ok := strings.CutPrefix(path, comfyui.KeptPath); ok {
		d.serveKept(w, r, name)
		return
	}
	name, ok := strings.CutPrefix(path, comfyui.InstancePath)
	name, _, slash := strings.Cut(name, "/")
	if !ok || !slash {
		http.NotFound(w, r)
		return
	}
	i := d.servers.find(name)
	if i == nil {
		// The agent may have just started and not found it again yet: a 404 would say that
		// files are gone.
		w.Header().Set(comfyui.UnreachableHeader, "it has no such instance")
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	d.pass(i, w, r)
}

// ownHost reports whether a request is for this machine's loopback, where an agent without
// a gossip key serves, or for the address that --serve names.
func (d *door) ownHost(host string) bool {
	return gossip.IsLoopback(hostOf(host)) || d.serve != "" && hostOf(host) == hostOf(d.serve)
}

// pass passes a request on to an instance.
func (d *door) pass(i *instance, w http.ResponseWriter, r *http.Request) {
	answer := &passed{ResponseWriter: w, deliberate: func() bool { return d.servers.deliberate(i) }}
	http.StripPrefix(comfyui.InstancePath+i.name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isFetch(r.URL.Path) {
			defer d.fetches.begin()()
		}
		if !comfyui.IsReboot(r.Method, r.URL) {
			i.handler.ServeHTTP(w, r)
			return
		}
		d.servers.ask(i)
		i.handler.ServeHTTP(w, r)
		if answer.status >= http.StatusBadRequest && answer.status < http.StatusInternalServerError {
			d.servers.unask(i) // it is not there, or not allowed
		}
	})).ServeHTTP(answer, r)
}

// maxKeptBody bounds a message of a hub, in bytes.
const maxKeptBody = 2 << 20

// serveRestart restarts an instance that a hub has found sick.
func (d *door) serveRestart(w http.ResponseWriter, r *http.Request, name string) {
	i := d.posted(w, r, name)
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
func (d *door) serveKept(w http.ResponseWriter, r *http.Request, name string) {
	i := d.posted(w, r, name)
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
		d.log.Warn("cannot write the list of files that the hub keeps", "instance", i.name, "error", err)
		http.Error(w, "cannot be written", http.StatusInternalServerError)
	}
}

// posted returns the instance to which something was posted, nil if the request has been
// answered with an error.
func (d *door) posted(w http.ResponseWriter, r *http.Request, name string) *instance {
	i := d.servers.find(name)
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
