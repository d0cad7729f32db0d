package ops

import (
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/submit"
)

// getCallbacks answers GET /hub/callbacks?state=waiting|dead.
func (o *room) getCallbacks(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	list, moment := o.hub().Callbacks.Waiting, "next_attempt_at"
	switch api.QueryOf(r).Get("state") {
	case "", "waiting":
	case "dead":
		list, moment = o.hub().Callbacks.Dead, "given_up_at"
	default:
		api.WriteErrorText(w, http.StatusBadRequest, "state: must be waiting or dead")
		return
	}
	callbacks, err := list(r.Context(), a.Viewer())
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	out := pyjson.Array{}
	for _, c := range callbacks {
		out = append(out, pyjson.NewObject(
			pyjson.Member{Key: "id", Value: pyjson.String(c.ID)},
			pyjson.Member{Key: "type", Value: pyjson.String("job." + c.Name)},
			pyjson.Member{Key: "job", Value: pyjson.String(c.Prompt)},
			pyjson.Member{Key: "tenant", Value: pyjson.String(c.Tenant)},
			pyjson.Member{Key: "url", Value: pyjson.String(c.URL)},
			pyjson.Member{Key: "attempts", Value: pyjson.Int(int64(c.Attempts))},
			pyjson.Member{Key: "error", Value: stringOrNull(c.Error)},
			pyjson.Member{Key: "created_at", Value: seconds(c.At)},
			pyjson.Member{Key: moment, Value: seconds(c.Time)},
		))
	}
	api.WriteListing(w, r, out)
}

// getCallbackSecret answers GET /hub/callbacks/secret: what the caller's callbacks are
// signed with.
func (o *room) getCallbackSecret(w http.ResponseWriter, _ *http.Request, a api.Requester, _ []string) {
	secret := o.hub().Callbacks.Secret(a.Tenant)
	if secret == "" {
		api.WriteErrorText(w, http.StatusNotFound, "This hub has no callbacks")
		return
	}
	api.WriteSecret(w, a, "secret", secret)
}

// postCallbackReplay answers POST /hub/callbacks/{id}/replay.
func (o *room) postCallbackReplay(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	err := o.hub().Callbacks.Replay(r.Context(), a.Viewer(), path[0])
	switch {
	case errors.Is(err, submit.ErrNoCallback) && a.Elsewhere:
		o.refuseElsewhere(w)
	case errors.Is(err, submit.ErrNoCallback):
		api.WriteErrorText(w, http.StatusNotFound, "Callback not found")
	case err != nil:
		o.Fail(w, r, err)
	default:
		api.WriteValue(w, pyjson.NewObject(pyjson.Member{Key: "replayed", Value: pyjson.Bool(true)}))
	}
}
