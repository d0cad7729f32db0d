package caddymodule

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/comfyhub/comfyhub/internal/api/ops"
	"github.com/comfyhub/comfyhub/internal/hub"
)

// serveStats answers with the fleet and everybody's jobs in numbers.
func serveStats(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	stats, err := h.Operator.Stats(r.Context())
	return answerJSON(w, ops.StatsJSON(stats), err)
}

// serveScale answers with the machines that come and go by need, and the serverless endpoints.
func serveScale(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	classes, err := h.Scaler.Status(r.Context())
	if err != nil {
		return unavailable(err)
	}
	places, err := h.Endpoints.Status(r.Context())
	return answerJSON(w, ops.ScaleJSON(classes, places), err)
}

// serveJobs answers with a part of everybody's jobs that run and wait, or with those of an id.
func serveJobs(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	body, err := ops.JobsJSON(r.Context(), h.Operator, r.URL.Query())
	if errors.Is(err, ops.ErrPage) {
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
	}
	return answerJSON(w, body, err)
}

// serveCancel cancels a job of a tenant.
func serveCancel(h *hub.Hub, w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	tenant, id := query.Get("tenant"), query.Get("job")
	if tenant == "" || id == "" {
		return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: errors.New("give tenant=NAME and job=ID, as GET /comfyhub/jobs shows them")}
	}
	cancelled, err := h.Canceller.Cancel(r.Context(), tenant, id)
	if err != nil {
		return unavailable(err)
	}
	return answer(w, map[string]any{"cancelled": cancelled})
}

func answerJSON(w http.ResponseWriter, body []byte, err error) error {
	if err != nil {
		return unavailable(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(body)
	return err
}
