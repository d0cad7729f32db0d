package ops

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// getTrends answers GET /hub/trends: how the fleet has done within the last day.
func (o dashboard) getTrends(w http.ResponseWriter, r *http.Request, _ api.Requester, _ []string) {
	day, err := o.hub().Figures.Trends(r.Context())
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	list := pyjson.Array{}
	for _, b := range day {
		entry := pyjson.NewObject(pyjson.Member{Key: "at", Value: seconds(b.At)})
		for _, outcome := range view.Outcomes() {
			entry.Set(outcome, pyjson.Int(b.Ended[outcome]))
		}
		entry.Set("wait_p50", orNull(b.P50))
		entry.Set("wait_p95", orNull(b.P95))
		use := -1.0
		if b.Up > 0 {
			use = float64(b.Busy) / float64(b.Up)
		}
		entry.Set("use", orNull(use))
		entry.Set("model_switches", pyjson.Int(b.Switched))
		entry.Set("model_switches_saved", pyjson.Int(b.Saved))
		list = append(list, entry)
	}
	api.WriteListing(w, r, pyjson.NewObject(
		pyjson.Member{Key: "seconds", Value: pyjson.Int(int64(view.TrendWidth.Seconds()))},
		pyjson.Member{Key: "buckets", Value: list},
	))
}

// orNull is a number, or null for a negative one.
func orNull(n float64) pyjson.Value {
	if n < 0 {
		return pyjson.Null{}
	}
	return pyjson.Float(n)
}

// getFaults answers GET /hub/faults: what has gone wrong within the last day, the newest
// first.
func (o dashboard) getFaults(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	faults, err := o.hub().Figures.Faults(r.Context(), a.Viewer())
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	list := pyjson.Array{}
	for _, f := range faults {
		list = append(list, pyjson.NewObject(
			pyjson.Member{Key: "at", Value: seconds(f.At)},
			pyjson.Member{Key: "kind", Value: pyjson.String(f.Kind)},
			pyjson.Member{Key: "tenant", Value: stringOrNull(f.Tenant)},
			pyjson.Member{Key: "job", Value: stringOrNull(f.Job)},
			pyjson.Member{Key: "instance", Value: stringOrNull(f.Instance)},
			pyjson.Member{Key: "reason", Value: pyjson.String(f.Reason)},
		))
	}
	api.WriteListing(w, r, list)
}

// getPreview answers GET /hub/preview?instance=NAME with the latest picture of the run
// there, if the caller may see it. The first request for a run gets 404: the hub keeps
// pictures only while somebody asks for them.
func (o dashboard) getPreview(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	picture, kind, ok := o.hub().Board.Preview(a.Viewer(), api.QueryOf(r).Get("instance"))
	w.Header().Set("Cache-Control", "no-store")
	if !ok {
		api.WriteErrorText(w, http.StatusNotFound, "There is no preview")
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(picture)
}
