package ops

import (
	"net/http"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// getLimits answers GET /hub/limits: what the caller's tenant may take of what all share, null where
// nothing bounds it, and how much of that it is using.
func (o dashboard) getLimits(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	l, err := o.hub().Finder.Limits(r.Context(), of(r, a))
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	bound := func(n int64) pyjson.Value {
		if n == 0 {
			return pyjson.Null{}
		}
		return pyjson.Int(n)
	}
	pair := func(now, most int64) *pyjson.Object {
		return pyjson.NewObject(pyjson.Member{Key: "now", Value: pyjson.Int(now)}, pyjson.Member{Key: "most", Value: bound(most)})
	}
	api.WriteDetail(w, pyjson.NewObject(
		pyjson.Member{Key: "running", Value: pair(int64(l.NowRunning), int64(l.Running))},
		pyjson.Member{Key: "waiting", Value: pair(int64(l.NowWaiting), int64(l.Waiting))},
		pyjson.Member{Key: "gpu_seconds", Value: pair(int64(l.Used.Spent.Seconds()), int64(l.GPUTime.Seconds()))},
		pyjson.Member{Key: "gpu_again_in", Value: pyjson.Float(l.Used.Wait.Seconds())},
		pyjson.Member{Key: "rate", Value: bound(int64(l.Rate))},
		pyjson.Member{Key: "storage", Value: bound(l.Storage)},
	))
}
