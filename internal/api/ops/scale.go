package ops

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/overflow"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/scale"
)

// getScale answers GET /hub/scale for operators: the classes of machines that come and go by need;
// with ?class=NAME one of them, whose "value" is what KEDA's metrics-api scaler reads; and the
// serverless endpoints.
func (o *room) getScale(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	if o.refuseOthers(w, a) {
		return
	}
	all, err := o.hub().Scaler.Status(r.Context())
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	if q := api.QueryOf(r); q.Has("class") {
		for _, s := range all {
			if s.Class == q.Get("class") {
				api.WriteValue(w, scaleValue(s))
				return
			}
		}
		api.WriteErrorText(w, http.StatusNotFound, "No class of that name is configured")
		return
	}
	places, err := o.hub().Endpoints.Status(r.Context())
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	api.WriteValue(w, spareValue(all, places))
}

// ScaleJSON is GET /hub/scale.
func ScaleJSON(classes []scale.Status, places []overflow.Status) []byte {
	return pyjson.Marshal(spareValue(classes, places))
}

func spareValue(classes []scale.Status, places []overflow.Status) *pyjson.Object {
	list, overflow := make(pyjson.Array, len(classes)), make(pyjson.Array, len(places))
	for n, s := range classes {
		list[n] = scaleValue(s)
	}
	for n, s := range places {
		overflow[n] = overflowValue(s)
	}
	return pyjson.NewObject(pyjson.Member{Key: "classes", Value: list}, pyjson.Member{Key: "overflow", Value: overflow})
}

func overflowValue(s overflow.Status) *pyjson.Object {
	o := pyjson.NewObject(
		pyjson.Member{Key: "endpoint", Value: pyjson.String(s.Endpoint)},
		pyjson.Member{Key: "running", Value: pyjson.Int(int64(s.Running))},
		pyjson.Member{Key: "spent_today", Value: pyjson.Float(s.Spent)},
		pyjson.Member{Key: "set_aside", Value: pyjson.Float(s.Aside)},
		pyjson.Member{Key: "price", Value: pyjson.Float(s.Price)},
		pyjson.Member{Key: "closed", Value: stringOrNull(s.Closed)},
	)
	if s.Budget > 0 {
		o.Set("budget", pyjson.Float(s.Budget))
	}
	return o
}

func scaleValue(s scale.Status) *pyjson.Object {
	number := func(n int) pyjson.Value { return pyjson.Int(int64(n)) }
	o := pyjson.NewObject(
		pyjson.Member{Key: "class", Value: pyjson.String(s.Class)},
		pyjson.Member{Key: "value", Value: number(s.Wanted)},
		pyjson.Member{Key: "wanted", Value: number(s.Wanted)},
		pyjson.Member{Key: "have", Value: number(s.Have)},
		pyjson.Member{Key: "starting", Value: number(s.Starting)},
		pyjson.Member{Key: "leaving", Value: number(s.Leaving)},
		pyjson.Member{Key: "min", Value: number(s.Min)},
		pyjson.Member{Key: "max", Value: number(s.Max)},
		pyjson.Member{Key: "why", Value: pyjson.String(s.Why)},
		pyjson.Member{Key: "start_seconds", Value: pyjson.Float(s.Start.Seconds())},
		pyjson.Member{Key: "failed_starts", Value: number(s.FailedStarts)},
		pyjson.Member{Key: "error", Value: stringOrNull(s.Error)},
	)
	if s.Price > 0 {
		o.Set("price", pyjson.Float(s.Price))
		o.Set("spent_today", pyjson.Float(s.Spent))
	}
	if s.Budget > 0 {
		o.Set("budget", pyjson.Float(s.Budget))
	}
	return o
}
