package ops

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/logs"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// getJobLog answers GET /hub/jobs/{id}/log: what the instance of its last run wrote meanwhile, for those
// who see everything, since a log tells of everybody's prompts.
func (o finder) getJobLog(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	if !o.hub().Insight.SeesAll(a.Viewer()) {
		api.WriteErrorText(w, http.StatusForbidden, "A log tells of everybody's prompts: it is for operators")
		return
	}
	j, p, release := o.promptFor(w, r, a, path[0])
	if release == nil {
		return
	}
	defer release()
	list := pyjson.Array{}
	for _, l := range o.logOf(r.Context(), j, p.status) {
		list = append(list, logs.Entry(l.Time, l.Text))
	}
	api.WriteDetail(w, pyjson.NewObject(pyjson.Member{Key: "instance", Value: stringOrNull(j.Run.Instance)}, pyjson.Member{Key: "entries", Value: list}))
}

func (o finder) logOf(ctx context.Context, j view.JobView, status []byte) []logs.Line {
	client := o.hub().Clients.ClientOf(j.Run.Instance)
	begin, end := ranFrom(j, status)
	if client == nil || begin.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, api.AskAllTimeout)
	defer cancel()
	answer, _ := api.Ask(ctx, client, "/internal/logs/raw", nil)
	log, _ := answer.(*pyjson.Object)
	return logs.OfRun(log.Array("entries"), begin, end)
}

// ranFrom returns when a run began and ended: by the instance's clock, which its messages have, as far
// as there are any.
func ranFrom(j view.JobView, status []byte) (begin, end time.Time) {
	if j.StartedAt > 0 {
		begin = time.UnixMilli(j.StartedAt)
	}
	if j.FinishedAt > 0 {
		end = time.UnixMilli(j.FinishedAt)
	}
	var said struct {
		Messages [][2]json.RawMessage `json:"messages"`
	}
	if json.Unmarshal(status, &said) != nil {
		return begin.UTC(), end.UTC()
	}
	for _, message := range said.Messages {
		var kind string
		var data struct {
			Timestamp int64 `json:"timestamp"`
		}
		if json.Unmarshal(message[0], &kind) != nil || json.Unmarshal(message[1], &data) != nil || data.Timestamp == 0 {
			continue
		}
		if kind == "execution_start" {
			begin = time.UnixMilli(data.Timestamp)
		}
		if !end.IsZero() {
			end = time.UnixMilli(data.Timestamp)
		}
	}
	return begin.UTC(), end.UTC()
}
