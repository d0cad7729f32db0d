package sim

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// cancel interrupts a running prompt or drops a pending one.
func (l *jobRoutes) cancel(id string) bool {
	if l.queue.isRunning(id) {
		l.interrupted.Store(true)
		return true
	}
	return l.queue.remove(id)
}

func (l *jobRoutes) cancelJob(w http.ResponseWriter, r *http.Request) {
	answerJSON(w, http.StatusOK, dict("cancelled", l.cancel(r.PathValue("id"))))
}

func (l *jobRoutes) cancelJobs(w http.ResponseWriter, r *http.Request) {
	data, ok := l.readBody(w, r)
	if !ok {
		return
	}
	body, err := pyjson.Parse(data)
	if err != nil {
		answerJSON(w, http.StatusBadRequest, dict("error", "Request body must be valid JSON"))
		return
	}
	req, _ := body.(*pyjson.Object)
	v, _ := req.Get("job_ids")
	ids, ok := v.(pyjson.Array)
	if !ok {
		answerJSON(w, http.StatusBadRequest, dict("error", "job_ids must be a list"))
		return
	}
	bad := []string{}
	for _, id := range ids {
		if s, ok := id.(pyjson.String); !ok || !canonicalUUID.MatchString(string(s)) {
			bad = append(bad, python.Str(id))
		}
	}
	if len(bad) > 0 {
		answerJSON(w, http.StatusBadRequest, dict("error", "job_ids contains invalid id(s)", "invalid_ids", bad))
		return
	}
	hit := false
	for _, id := range ids {
		hit = l.cancel(python.Str(id)) || hit
	}
	answerJSON(w, http.StatusOK, dict("cancelled", hit))
}
