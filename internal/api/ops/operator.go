package ops

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// of is the tenant whose job a request is about: the parameter tenant names another one for
// an operator, and says nothing for everybody else. A request that changes something asks
// ofOthers first.
func of(r *http.Request, a api.Requester) job.Viewer {
	v := a.Viewer()
	if tenant := api.QueryOf(r).Get("tenant"); tenant != "" && a.Operator {
		v.Tenant = tenant
	}
	return v
}

// ofOthers answers an operator who would change somebody else's job from a page where
// operators may not, and reports whether it did.
func (o *room) ofOthers(w http.ResponseWriter, r *http.Request, a api.Requester) bool {
	tenant := api.QueryOf(r).Get("tenant")
	if !a.Elsewhere || tenant == "" || tenant == a.Tenant {
		return false
	}
	o.refuseElsewhere(w)
	return true
}

// refuseElsewhere tells an operator in a browser where operators may change something.
func (o *room) refuseElsewhere(w http.ResponseWriter) {
	where := "There is none yet: the directive `comfyhub_operators` makes one"
	if at := o.hub().Settings.OperatorsAt; at != "" {
		where = "It is at " + strings.Replace(at, "//:", "//HUB:", 1) + "/hub/"
	}
	api.WriteError(w, api.Error{
		Status: http.StatusForbidden, Kind: "operators_site", Message: "In a browser, operators act only at the operators' site",
		Details: where + ", see docs/caddyfile.md. Here the scripts of custom nodes have your login, too. Programs send an API key as `Authorization: Bearer KEY`.",
	})
}

// refuseOthers answers callers that are no operators, and reports whether it did.
func (o *room) refuseOthers(w http.ResponseWriter, a api.Requester) bool {
	switch {
	case a.Operator:
		return false
	case a.Elsewhere:
		o.refuseElsewhere(w)
		return true
	}
	api.WriteErrorText(w, http.StatusForbidden, "Only operators may do this; the Caddyfile names them with `operators`")
	return true
}

// commands are those of operators.
type commands struct{ *room }

// command makes the handler of a command for everything, a tenant, or an instance.
func (o commands) command(do func(Operator, context.Context, queue.Stop) error) api.Handler {
	return func(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
		if o.refuseOthers(w, a) {
			return
		}
		stop, _, _, err := StopOf(api.QueryOf(r))
		if err != nil {
			api.WriteErrorText(w, http.StatusBadRequest, err.Error())
			return
		}
		o.told(w, r, do(o.hub().Operator, r.Context(), stop))
	}
}

// StopOf reads what a command is for, and returns the parameter that says so and its value;
// both are empty for everything. An empty or unknown parameter is a mistake: it must not mean
// everything.
func StopOf(query url.Values) (stop queue.Stop, word, name string, err error) {
	stop = queue.StopAll
	for parameter, values := range query {
		word, name = parameter, values[0]
		switch {
		case len(query) > 1 || len(values) > 1:
			return "", "", "", errors.New("give one parameter: tenant or instance, or none for everything")
		case word == "tenant" && name != "":
			stop = queue.StopTenant(name)
		case word == "instance" && name != "":
			stop = queue.StopInstance(name)
		default:
			return "", "", "", errors.New("give tenant=NAME or instance=NAME, or nothing for everything")
		}
	}
	return stop, word, name, nil
}

// maxDrain bounds how far ahead the deadline of a drain may be.
const maxDrain = 30 * 24 * time.Hour

// postDrain answers POST /hub/drain?instance=NAME&deadline=SECONDS.
func (o commands) postDrain(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	if o.refuseOthers(w, a) {
		return
	}
	q := api.QueryOf(r)
	name, text := q.Get("instance"), q.Get("deadline")
	if name == "" {
		api.WriteErrorText(w, http.StatusBadRequest, "give instance=NAME")
		return
	}
	if text == "" {
		o.told(w, r, o.hub().Operator.Pause(r.Context(), queue.StopInstance(name)))
		return
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= 0.001 && seconds <= maxDrain.Seconds()) {
		api.WriteErrorText(w, http.StatusBadRequest, "deadline: want a number of seconds, 30 days at most")
		return
	}
	o.told(w, r, o.hub().Operator.Drain(r.Context(), name, time.Duration(seconds*float64(time.Second))))
}

// postForget answers POST /hub/forget?instance=NAME.
func (o commands) postForget(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	if o.refuseOthers(w, a) {
		return
	}
	name := api.QueryOf(r).Get("instance")
	if name == "" {
		api.WriteErrorText(w, http.StatusBadRequest, "give instance=NAME")
		return
	}
	o.told(w, r, o.hub().Operator.ForgetInstance(r.Context(), name))
}

// postRestart answers POST /hub/restart?instance=NAME: the instance's agent restarts its
// process. What runs there runs elsewhere.
func (o commands) postRestart(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	if o.refuseOthers(w, a) {
		return
	}
	name := api.QueryOf(r).Get("instance")
	if name == "" {
		api.WriteErrorText(w, http.StatusBadRequest, "give instance=NAME")
		return
	}
	o.told(w, r, o.hub().Operator.Restart(r.Context(), name))
}

// told answers a command.
func (o commands) told(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case err == nil:
		api.WriteValue(w, pyjson.NewObject(pyjson.Member{Key: "ok", Value: pyjson.Bool(true)}))
	case errors.Is(err, fleet.ErrUnknown):
		api.WriteErrorText(w, http.StatusNotFound, "No instance of that name is known")
	case errors.Is(err, fleet.ErrPresent), errors.Is(err, fleet.ErrNoRestart):
		api.WriteErrorText(w, http.StatusConflict, err.Error())
	default:
		o.Fail(w, r, err)
	}
}
