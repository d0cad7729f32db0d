package caddymodule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/comfyhub/comfyhub/internal/api/ops"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/hub"
	"github.com/comfyhub/comfyhub/internal/operator"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// adminAPI adds the hub's health and the commands over its fleet to Caddy's admin
// endpoint:
//
//	GET  /comfyhub/live                    200 while the process works at all
//	GET  /comfyhub/ready                   200 when the hub can accept prompts, else 503
//	GET  /comfyhub/check                   what is wrong, and what to do about it
//	GET  /comfyhub/instances               the answer of GET /hub/instances
//	GET  /comfyhub/stats                   GET /hub/stats with everybody's jobs
//	GET  /comfyhub/jobs?status=&limit=     a part of everybody's jobs that run and wait
//	GET  /comfyhub/jobs?id=ID              everybody's jobs with this id, ended ones too
//	POST /comfyhub/cancel?tenant=&job=     cancel a job of a tenant
//	POST /comfyhub/pause                   give out no further job
//	POST /comfyhub/pause?tenant=NAME       no further job of a tenant
//	POST /comfyhub/pause?instance=NAME     let it finish its run and give it no other
//	POST /comfyhub/resume                  undo these, each with the same parameter
//	POST /comfyhub/drain?instance=NAME     the same as pause; with deadline=10m what still
//	                                       runs there after 10 minutes runs elsewhere
//	POST /comfyhub/restart?instance=NAME   have its agent start ComfyUI anew
//	POST /comfyhub/forget?agent=NAME       let an agent with another key have the name
//	POST /comfyhub/forget?instance=NAME    list an instance that is gone no longer
//	POST /comfyhub/rotate-keys             make a new key for links and API keys
//	GET  /comfyhub/adopt-storage           what the same with POST would do
//	POST /comfyhub/adopt-storage           tie the storage to the Redis of the hubs
//	GET  /comfyhub/trash?tenant=&limit=    names of files that can be taken back
//	POST /comfyhub/trash?tenant=&id=       take one back
//	GET  /comfyhub/hub-key                 the key by which agents know the hubs
//	GET  /comfyhub/tokens                  the machines that may open a tunnel
//	POST /comfyhub/tokens?machine=NAME     let a machine open one: {"token": ...}
//	DELETE /comfyhub/tokens?machine=NAME   do not let it any more
//	GET  /comfyhub/keys                    the API keys, without their secrets
//	POST /comfyhub/keys?name=NAME&...      make one: {"secret": ...}
//	DELETE /comfyhub/keys?name=NAME        revoke it
type adminAPI struct{}

// adminHandler answers a request to the admin endpoint.
type adminHandler func(h *hub.Hub, w http.ResponseWriter, r *http.Request) error

// early are the paths that a hub answers before it has started.
var early = []string{"/comfyhub/live", "/comfyhub/ready", "/comfyhub/check", "/comfyhub/instances", "/comfyhub/scale"}

// started has a handler wait for a hub that can answer requests.
func started(handler adminHandler) adminHandler {
	return func(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
		if !h.Started() {
			return unavailable(config.ErrNotStarted)
		}
		return handler(h, w, r)
	}
}

// errNoHub is returned while no configuration with a hub is running.
var errNoHub = errors.New("no hub is running")

// CaddyModule returns the Caddy module information.
func (adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.comfyhub",
		New: func() caddy.Module { return adminAPI{} },
	}
}

// Routes returns the routes of the admin endpoint.
func (adminAPI) Routes() []caddy.AdminRoute {
	routes := func(path string, serve map[string]adminHandler) caddy.AdminRoute {
		return caddy.AdminRoute{Pattern: path, Handler: caddy.AdminHandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			handler := serve[r.Method]
			if r.Method == http.MethodHead {
				handler = serve[http.MethodGet]
			}
			if handler == nil {
				w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(serve)), ", "))
				return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("method not allowed")}
			}
			h, err := activeHub()
			if err != nil {
				return unavailable(err)
			}
			if !slices.Contains(early, path) {
				handler = started(handler)
			}
			return audited(handler)(h, w, r)
		})}
	}
	route := func(path, method string, serve adminHandler) caddy.AdminRoute {
		return routes(path, map[string]adminHandler{method: serve})
	}
	return []caddy.AdminRoute{
		route("/comfyhub/live", http.MethodGet, serveLive),
		route("/comfyhub/ready", http.MethodGet, serveReady),
		route("/comfyhub/check", http.MethodGet, serveCheck),
		route("/comfyhub/instances", http.MethodGet, serveInstances),
		route("/comfyhub/stats", http.MethodGet, serveStats),
		route("/comfyhub/scale", http.MethodGet, serveScale),
		route("/comfyhub/jobs", http.MethodGet, serveJobs),
		route("/comfyhub/cancel", http.MethodPost, serveCancel),
		route("/comfyhub/pause", http.MethodPost, serveStop((*operator.Operator).Pause)),
		route("/comfyhub/resume", http.MethodPost, serveStop((*operator.Operator).Resume)),
		route("/comfyhub/drain", http.MethodPost, serveDrain),
		route("/comfyhub/restart", http.MethodPost, serveRestart),
		route("/comfyhub/forget", http.MethodPost, serveForget),
		route("/comfyhub/rotate-keys", http.MethodPost, serveRotateKeys),
		routes("/comfyhub/adopt-storage", map[string]adminHandler{http.MethodGet: serveAdoption, http.MethodPost: serveAdoptStorage}),
		routes("/comfyhub/trash", map[string]adminHandler{http.MethodGet: serveTrash, http.MethodPost: serveTakeBack}),
		route("/comfyhub/hub-key", http.MethodGet, serveHubKey),
		routes("/comfyhub/tokens", map[string]adminHandler{
			http.MethodGet: serveTokens, http.MethodPost: serveIssueToken, http.MethodDelete: serveRevokeToken,
		}),
		routes("/comfyhub/keys", map[string]adminHandler{
			http.MethodGet: serveKeys, http.MethodPost: serveAddKey, http.MethodDelete: serveRevokeKey,
		}),
	}
}

// activeHub returns the hub of the configuration that is serving. It is looked up
// for each request, because the admin endpoint of a configuration that failed to
// start stays, while the previous configuration continues to serve.
func activeHub() (*hub.Hub, error) {
	module, err := caddy.ActiveContext().AppIfConfigured("comfyhub")
	if err != nil {
		return nil, errNoHub
	}
	shared := module.(*App).shared
	if shared == nil {
		return nil, errNoHub
	}
	return shared.hub, nil
}

func serveLive(_ *hub.Hub, w http.ResponseWriter, _ *http.Request) error {
	return answer(w, map[string]any{"live": true})
}

func serveReady(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	if err := h.Ready(r.Context()); err != nil {
		return unavailable(err)
	}
	return answer(w, map[string]any{"ready": true})
}

func serveCheck(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	return answer(w, map[string]any{"findings": h.Checkup.Findings(r.Context())})
}

func serveInstances(h *hub.Hub, w http.ResponseWriter, _ *http.Request) error {
	return answerJSON(w, ops.InstancesJSON(h.Operator.Instances()), nil)
}

// serveStop answers a command for everything, a tenant, or an instance.
func serveStop(command func(*operator.Operator, context.Context, queue.Stop) error) func(*hub.Hub, http.ResponseWriter, *http.Request) error {
	return func(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
		stop, word, name, err := ops.StopOf(r.URL.Query())
		if err != nil {
			return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
		}
		err = command(h.Operator, r.Context(), stop)
		switch {
		case errors.Is(err, fleet.ErrUnknown):
			return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("no instance is called %q", name)}
		case err != nil:
			return unavailable(err)
		}
		if word == "" {
			return answer(w, map[string]any{"all": true})
		}
		return answer(w, map[string]any{word: name})
	}
}

// serveDrain pauses an instance, with an optional deadline for what it runs.
func serveDrain(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	name := query.Get("instance")
	if name == "" {
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: errors.New("the parameter instance is missing")}
	}
	if !query.Has("deadline") {
		return serveStop((*operator.Operator).Pause)(h, w, r)
	}
	deadline, err := drainDeadline(query.Get("deadline"))
	if err != nil {
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
	}
	query.Del("deadline")
	if _, _, _, err := ops.StopOf(query); err != nil {
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
	}
	switch err := h.Operator.Drain(r.Context(), name, deadline); {
	case errors.Is(err, fleet.ErrUnknown):
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("no instance is called %q", name)}
	case err != nil:
		return unavailable(err)
	}
	return answer(w, map[string]any{"instance": name, "deadline": deadline.Seconds()})
}

// maxDeadline bounds how far ahead the deadline of a drain may be.
const maxDeadline = 30 * 24 * time.Hour

// drainDeadline reads a number of seconds, or a duration such as 10m.
func drainDeadline(text string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		text += "s"
	}
	d, err := parseDuration(text)
	if err != nil || time.Duration(d) < time.Millisecond || time.Duration(d) > maxDeadline {
		return 0, fmt.Errorf("deadline %q is neither a number of seconds nor a duration such as 10m, of at most 30 days", text)
	}
	return time.Duration(d), nil
}

// serveRestart has an instance's agent start its process anew.
func serveRestart(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	name := query.Get("instance")
	if name == "" || len(query) > 1 {
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: errors.New("give instance=NAME")}
	}
	switch err := h.Operator.Restart(r.Context(), name); {
	case errors.Is(err, fleet.ErrUnknown):
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("no instance is called %q", name)}
	case errors.Is(err, fleet.ErrNoRestart):
		return caddy.APIError{HTTPStatus: http.StatusConflict, Err: err}
	case err != nil:
		return unavailable(err)
	}
	return answer(w, map[string]any{"instance": name})
}

// serveForget releases the name of an agent or an instance that is gone.
func serveForget(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	word, forget := "agent", h.Operator.ForgetAgent
	if query.Has("instance") {
		word, forget = "instance", h.Operator.ForgetInstance
	}
	name := query.Get(word)
	if name == "" || len(query) > 1 {
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: errors.New("give agent=NAME or instance=NAME")}
	}
	err := forget(r.Context(), name)
	switch {
	case errors.Is(err, operator.ErrAgentAlive), errors.Is(err, fleet.ErrPresent):
		return caddy.APIError{HTTPStatus: http.StatusConflict, Err: err}
	case errors.Is(err, operator.ErrAgentUnknown), errors.Is(err, fleet.ErrUnknown):
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
	case err != nil:
		return unavailable(err)
	}
	return answer(w, map[string]any{word: name})
}

// serveRotateKeys answers with the id of the new key, when it comes into use, and
// how many keys are valid.
func serveRotateKeys(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	rotation, err := h.Ring.Rotate(r.Context())
	if err != nil {
		return unavailable(err)
	}
	return answer(w, map[string]any{"key": rotation.Key, "used_from": rotation.From.Unix(), "keys": rotation.Keys})
}

// serveAdoption answers with what serveAdoptStorage would do.
func serveAdoption(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	adoption, err := h.Bond.Adoption(r.Context())
	if err != nil {
		return unavailable(err)
	}
	return answer(w, adoption)
}

func serveAdoptStorage(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	if err := h.Bond.Adopt(r.Context()); err != nil {
		return unavailable(err)
	}
	return answer(w, map[string]any{"adopted": true})
}

// serveHubKey answers with the public key by which agents know the hubs.
func serveHubKey(h *hub.Hub, w http.ResponseWriter, _ *http.Request) error {
	key, err := h.Authority.Key()
	if err != nil {
		return unavailable(err)
	}
	return answer(w, map[string]any{"key": key})
}

func unavailable(err error) error {
	return caddy.APIError{HTTPStatus: http.StatusServiceUnavailable, Err: err}
}

func answer(w http.ResponseWriter, body any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(body)
}
