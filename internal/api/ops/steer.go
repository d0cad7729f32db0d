package ops

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/submit"
)

// errSteering says what the body of PATCH /hub/jobs/{id} must be.
var errSteering = errors.New(`want JSON with one or more of "priority": -100 to 100, "position": "front" or "end", "paused": true or false`)

// steering reads what to change of a job. What it does not know it refuses: a word
// that is misspelt must not look as if it had worked.
func steering(body []byte) (submit.Steering, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || len(fields) == 0 {
		return submit.Steering{}, errSteering
	}
	var s submit.Steering
	for name, value := range fields {
		var err error
		switch name {
		case "priority":
			err = json.Unmarshal(value, &s.Priority)
			if err == nil && (s.Priority == nil || *s.Priority < job.MinPriority || *s.Priority > job.MaxPriority) {
				err = errSteering
			}
		case "position":
			err = json.Unmarshal(value, &s.Position)
			if err == nil && s.Position != submit.Front && s.Position != submit.End {
				err = errSteering
			}
		case "paused":
			err = json.Unmarshal(value, &s.Paused)
			if err == nil && s.Paused == nil {
				err = errSteering
			}
		default:
			err = errSteering
		}
		if err != nil {
			return submit.Steering{}, errSteering
		}
	}
	return s, nil
}

// patchJob answers PATCH /hub/jobs/{id} with the job as it is then.
func (o *room) patchJob(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	if o.ofOthers(w, r, a) {
		return
	}
	body, done, ok := o.ReadBody(w, r, a, api.SmallBody)
	if !ok {
		return
	}
	defer done()
	change, err := steering(body)
	if err != nil {
		api.WriteErrorText(w, http.StatusBadRequest, err.Error())
		return
	}
	err = o.hub().Canceller.Steer(r.Context(), of(r, a).Tenant, path[0], change)
	switch {
	case errors.Is(err, submit.ErrNotWaiting):
		api.WriteErrorText(w, http.StatusConflict, "The job is not waiting: it has been given to an instance, or has ended")
	case err != nil:
		o.failJob(w, r, err)
	default:
		o.getJob(w, r, a, path)
	}
}
