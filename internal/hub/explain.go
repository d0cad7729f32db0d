package hub

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// postExplain answers POST /hub/explain: why a job waits, or where it is, and
// what speaks for or against each instance.
func (h *Hub) postExplain(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	body, done, ok := h.requests.ReadBody(w, r, a, api.SmallBody)
	if !ok {
		return
	}
	defer done()
	var ask struct {
		PromptID string `json:"prompt_id"`
	}
	if json.Unmarshal(body, &ask) != nil || ask.PromptID == "" {
		api.WriteErrorText(w, http.StatusBadRequest, "prompt_id is needed as JSON")
		return
	}
	j, err := h.queue.Find(r.Context(), a.Tenant, ask.PromptID)
	if errors.Is(err, queue.ErrNotFound) {
		api.WriteErrorText(w, http.StatusNotFound, "Job not found")
		return
	}
	if err != nil {
		h.requests.Fail(w, r, err)
		return
	}
	api.WriteDetail(w, h.explain(r.Context(), j, h.insightOf(a)))
}

// explain tells what is known of a job. What cannot be read now is left out:
// half an explanation is better than none.
func (h *Hub) explain(ctx context.Context, j job.Job, in insight) *pyjson.Object {
	state, place, reason := j.State, pyjson.Value(pyjson.Null{}), j.Reason
	if state == job.Leased {
		state = job.Running
	}
	var candidates []dispatch.Candidate
	switch {
	case state == job.Queued:
		if position, err := h.queue.Position(ctx, j.Key); err == nil {
			place = pyjson.Int(int64(position))
		}
		if body, err := h.queue.Body(ctx, j.Key); err == nil {
			if needs, err := catalog.DecodeRequirements(body.Requires); err == nil {
				candidates, reason = h.dispatch.Candidates(needs, j.Key), h.dispatch.Explain(needs)
			}
		}
	case state == job.Running:
		reason = "it is being run by " + j.Run.Instance
	}
	list := pyjson.Array{}
	for _, c := range candidates {
		list = append(list, pyjson.NewObject(
			pyjson.Member{Key: "name", Value: pyjson.String(c.Name)},
			pyjson.Member{Key: "state", Value: pyjson.String(c.State)},
			pyjson.Member{Key: "can_run", Value: pyjson.Bool(c.Can)},
			pyjson.Member{Key: "why", Value: pyjson.String(in.words.Replace(c.Why))},
			pyjson.Member{Key: "lacks", Value: pyjson.Strings(c.Lacks)},
		))
	}
	return pyjson.NewObject(
		pyjson.Member{Key: "id", Value: pyjson.String(j.ID)},
		pyjson.Member{Key: "state", Value: pyjson.String(state)},
		pyjson.Member{Key: "position", Value: place},
		pyjson.Member{Key: "attempts", Value: pyjson.Int(int64(j.Attempts))},
		pyjson.Member{Key: "reason", Value: pyjson.String(in.words.Replace(reason))},
		pyjson.Member{Key: "instances", Value: list},
	)
}
