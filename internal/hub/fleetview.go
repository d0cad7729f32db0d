package hub

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// InstancesJSON is the fleet for its operator: GET /hub/instances with the
// addresses of all instances and the ids of all prompts.
func (h *Hub) InstancesJSON() []byte {
	list := pyjson.Array{}
	for _, i := range h.fleet.Instances() {
		list = append(list, instanceValue(i))
	}
	return pyjson.Marshal(list)
}

func instanceValue(i fleet.Instance) *pyjson.Object {
	lastSeen := pyjson.Value(pyjson.Null{})
	if !i.LastSeen.IsZero() {
		lastSeen = pyjson.Int(i.LastSeen.Unix())
	}
	return pyjson.NewObject(
		pyjson.Member{Key: "name", Value: pyjson.String(i.Name)},
		pyjson.Member{Key: "url", Value: pyjson.String(i.URL)},
		pyjson.Member{Key: "kind", Value: pyjson.String(i.Kind)},
		pyjson.Member{Key: "state", Value: pyjson.String(i.State)},
		pyjson.Member{Key: "running", Value: stringOrNull(i.Running)},
		pyjson.Member{Key: "version", Value: pyjson.String(i.Report.Version)},
		pyjson.Member{Key: "gpu", Value: pyjson.String(i.Report.GPU)},
		pyjson.Member{Key: "vram_total", Value: pyjson.Int(i.Report.VRAMTotal)},
		pyjson.Member{Key: "vram_free", Value: pyjson.Int(i.Report.VRAMFree)},
		pyjson.Member{Key: "last_seen", Value: lastSeen},
		pyjson.Member{Key: "reason", Value: pyjson.String(i.Reason)},
	)
}

// getInstances answers GET /hub/instances: prompts of others make an instance
// busy and are not named.
func (h *Hub) getInstances(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	instances := h.fleet.Instances()
	in := h.ofInstances(r.Context(), a, instances)
	list := pyjson.Array{}
	for _, i := range instances {
		list = append(list, instanceValue(in.of(i)))
	}
	api.WriteListing(w, r, list)
}

// getJobs answers GET /hub/jobs: what runs and waits, then what has ended, the
// newest first.
func (h *Hub) getJobs(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	live, err := h.queue.Live(r.Context(), a.Tenant)
	if err != nil {
		h.requests.Fail(w, r, err)
		return
	}
	list := pyjson.Array{}
	in := h.insightOf(a)
	position := 0
	for _, j := range live {
		if j.State == job.Queued {
			list = append(list, jobValue(j, position, in))
			position++
			continue
		}
		list = append(list, jobValue(j, -1, in))
	}
	limit := 200
	ended, err := h.queue.Ended(r.Context(), a.Tenant, queue.Page{Max: &limit})
	if err != nil {
		h.requests.Fail(w, r, err)
		return
	}
	for _, record := range slices.Backward(ended) {
		list = append(list, jobValue(record.Job, -1, in))
	}
	api.WriteListing(w, r, list)
}

// getJob answers GET /hub/jobs/{id}.
func (h *Hub) getJob(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	j, err := h.queue.Find(r.Context(), a.Tenant, path[0])
	if errors.Is(err, queue.ErrNotFound) {
		api.WriteJSON(w, http.StatusNotFound, []byte(`{"error": "Job not found"}`))
		return
	}
	if err != nil {
		h.requests.Fail(w, r, err)
		return
	}
	position := -1
	if j.State == job.Queued {
		if position, err = h.queue.Position(r.Context(), j.Key); err != nil {
			position = -1
		}
		if body, err := h.queue.Body(r.Context(), j.Key); err == nil {
			if needs, err := catalog.DecodeRequirements(body.Requires); err == nil {
				j.Reason = h.dispatch.Explain(needs)
			}
		}
	}
	api.WriteDetail(w, jobValue(j, position, h.insightOf(a)))
}

// jobValue is an entry of /hub/jobs; position is -1 for a job that does not
// wait.
func jobValue(j job.Job, position int, in insight) *pyjson.Object {
	status := string(j.State)
	if j.State == job.Leased {
		status = string(job.Running)
	}
	place := pyjson.Value(pyjson.Null{})
	if position >= 0 {
		place = pyjson.Int(int64(position))
	}
	lost := make([]string, len(j.Lost))
	for n, line := range j.Lost {
		lost[n] = in.words.Replace(line)
	}
	return pyjson.NewObject(
		pyjson.Member{Key: "id", Value: pyjson.String(j.ID)},
		pyjson.Member{Key: "status", Value: pyjson.String(status)},
		pyjson.Member{Key: "position", Value: place},
		pyjson.Member{Key: "eta", Value: pyjson.Null{}},
		pyjson.Member{Key: "instance", Value: stringOrNull(j.Run.Instance)},
		pyjson.Member{Key: "attempts", Value: pyjson.Int(int64(j.Attempts))},
		pyjson.Member{Key: "tenant", Value: pyjson.String(j.Tenant)},
		pyjson.Member{Key: "priority", Value: pyjson.Int(int64(j.Priority))},
		pyjson.Member{Key: "progress", Value: pyjson.Float(j.Progress)},
		pyjson.Member{Key: "created_at", Value: seconds(j.CreatedAt)},
		pyjson.Member{Key: "started_at", Value: seconds(j.StartedAt)},
		pyjson.Member{Key: "finished_at", Value: seconds(j.FinishedAt)},
		pyjson.Member{Key: "error", Value: pyjson.String(in.words.Replace(j.Reason))},
		pyjson.Member{Key: "lost", Value: pyjson.Strings(lost)},
	)
}

// postJobCancel answers POST /hub/jobs/{id}/cancel, wherever the job is.
func (h *Hub) postJobCancel(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	j, err := h.find(r.Context(), a.Tenant, path[0])
	if err == nil && j.Key != "" && j.State.Live() {
		err = h.stop(r.Context(), j)
		if err == nil {
			api.WriteJSON(w, http.StatusOK, []byte(`{"cancelled": true}`))
			return
		}
	}
	if err != nil {
		h.requests.Fail(w, r, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, []byte(`{"cancelled": false}`))
}

// getStats answers GET /hub/stats: the fleet in a few numbers. Prompts and
// sockets are the tenant's own where others are none of its business.
func (h *Hub) getStats(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	live, waiting, sockets, err := h.load(r.Context(), a)
	if err != nil {
		h.requests.Fail(w, r, err)
		return
	}
	states := pyjson.NewObject()
	counts := map[fleet.State]int{}
	for _, i := range h.fleet.Instances() {
		counts[i.State]++
	}
	for _, s := range fleet.States() {
		states.Set(string(s), pyjson.Int(int64(counts[s])))
	}
	api.WriteValue(w, pyjson.NewObject(
		pyjson.Member{Key: "queued", Value: pyjson.Int(int64(waiting))},
		pyjson.Member{Key: "running", Value: pyjson.Int(int64(live - waiting))},
		pyjson.Member{Key: "sockets", Value: pyjson.Int(int64(sockets))},
		pyjson.Member{Key: "instances", Value: states},
	))
}

func (h *Hub) load(ctx context.Context, a api.Requester) (live, waiting, sockets int, err error) {
	if h.insightOf(a).whole {
		live, waiting, err = h.queue.CountAll(ctx)
		return live, waiting, h.streams.Sockets(), err
	}
	live, waiting, err = h.queue.CountOf(ctx, a.Tenant)
	return live, waiting, h.streams.SocketsOf(a.Tenant), err
}

func stringOrNull(s string) pyjson.Value {
	if s == "" {
		return pyjson.Null{}
	}
	return pyjson.String(s)
}

// seconds is a moment in Unix seconds, or null.
func seconds(ms int64) pyjson.Value {
	if ms == 0 {
		return pyjson.Null{}
	}
	return pyjson.Float(float64(ms) / 1000)
}

// Drain lets an instance finish its run and gives it no other. It reports
// whether the instance is known.
func (h *Hub) Drain(name string) bool { return h.fleet.SetDraining(name, true) }

// Resume undoes Drain.
func (h *Hub) Resume(name string) bool {
	ok := h.fleet.SetDraining(name, false)
	if h.started.Load() {
		h.dispatch.Wake()
	}
	return ok
}
