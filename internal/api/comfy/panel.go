package comfy

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"net/http"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// panelScript is the hub's own extension of ComfyUI's page. It takes its texts from the dashboard.
//
//go:embed panel.js
var panelScript []byte

// panelPath is where it is, beside the extensions of custom nodes.
const panelPath = "/extensions/comfyhub/panel.js"

// maxScripts bounds a list of scripts that the hub's is added to, in bytes.
const maxScripts = 1 << 20

// panel shows users, in ComfyUI's page, what the hub knows of their jobs.
type panel struct {
	shared

	surveys surveys
}

func (p panel) addRoutes(t *api.Router) {
	t.Both("GET /extensions", p.getExtensions)
	t.Both("GET "+panelPath, p.getScript)
}

func (p panel) getScript(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
	if p.hub().Settings.NoQueuePanel {
		api.WriteNotFound(w, r)
		return
	}
	api.AsPage(w)
	sum := sha256.Sum256(panelScript)
	if api.Unchanged(w, r, sum[:]) {
		return
	}
	w.Header().Set("Content-Type", "application/javascript")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(panelScript)
}

// getExtensions answers GET /extensions: those of the instance that the page comes from, and the hub's
// where the page asks, which names a user in each call. Programs get what ComfyUI answers.
func (p panel) getExtensions(w http.ResponseWriter, r *http.Request, a api.Requester, values []string) {
	ask := p.surveys.told("[]")
	if _, page := r.Header["Comfy-User"]; !page || p.hub().Settings.NoQueuePanel {
		ask(w, r, a, values)
		return
	}
	list := &longer{ResponseWriter: w}
	ask(list, r, a, values)
	list.finish()
}

// longer adds the hub's script to a list of scripts. Any other answer passes through it.
type longer struct {
	http.ResponseWriter

	status int
	passes bool
	held   bytes.Buffer
}

// WriteHeader implements [http.ResponseWriter].
func (l *longer) WriteHeader(status int) {
	if l.status != 0 {
		return
	}
	l.status = status
	if status != http.StatusOK || l.Header().Get("Content-Encoding") != "" {
		l.pass()
	}
}

// Write implements [http.ResponseWriter].
func (l *longer) Write(p []byte) (int, error) {
	l.WriteHeader(http.StatusOK)
	if !l.passes && l.held.Len()+len(p) > maxScripts {
		l.pass()
	}
	if l.passes {
		return l.ResponseWriter.Write(p)
	}
	return l.held.Write(p)
}

// pass sends what has come, and from now on whatever comes.
func (l *longer) pass() {
	l.passes = true
	l.ResponseWriter.WriteHeader(l.status)
	_, _ = l.held.WriteTo(l.ResponseWriter) // the visitor may be gone
}

func (l *longer) finish() {
	if l.status == 0 || l.passes {
		return // nobody waits for an answer, or they have it
	}
	value, err := pyjson.Parse(l.held.Bytes())
	scripts, ok := value.(pyjson.Array)
	if err == nil && ok {
		l.held.Reset()
		l.held.Write(pyjson.Marshal(append(scripts, pyjson.String(panelPath))))
	}
	l.Header().Set("Content-Length", strconv.Itoa(l.held.Len()))
	l.pass()
}
