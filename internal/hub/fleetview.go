package hub

import (
	"errors"
	"net/http"
	"slices"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// InstancesJSON is the answer of GET /hub/instances.
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

func (h *Hub) getInstances(w http.ResponseWriter, r *http.Request, _ asker, _ []string) {
	writeListing(w, r, h.InstancesJSON())
}

// getJobs answers GET /hub/jobs: what runs and waits, then what has ended, the
// newest first.
func (h *Hub) getJobs(w http.ResponseWriter, r *http.Request, a asker, _ []string) {
	live, err := h.queue.Live(r.Context(), a.tenant)
	if err != nil {
		h.fault(w, r, err)
		return
	}
	list := pyjson.Array{}
	position := 0
	for _, j := range live {
		if j.State == job.Queued {
			list = append(list, h.jobValue(j, position))
			position++
			continue
		}
		list = append(list, h.jobValue(j, -1))
	}
	limit := 200
	ended, err := h.queue.Ended(r.Context(), a.tenant, queue.Page{Max: &limit})
	if err != nil {
		h.fault(w, r, err)
		return
	}
	for _, record := range slices.Backward(ended) {
		list = append(list, h.jobValue(record.Job, -1))
	}
	writeListing(w, r, pyjson.Marshal(list))
}

// getJob answers GET /hub/jobs/{id}.
func (h *Hub) getJob(w http.ResponseWriter, r *http.Request, a asker, path []string) {
	j, err := h.queue.Find(r.Context(), a.tenant, path[0])
	if errors.Is(err, queue.ErrNotFound) {
		writeJSON(w, http.StatusNotFound, []byte(`{"error": "Job not found"}`))
		return
	}
	if err != nil {
		h.fault(w, r, err)
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
	writeValue(w, h.jobValue(j, position))
}

// jobValue is an entry of /hub/jobs; position is -1 for a job that does not
// wait.
func (h *Hub) jobValue(j job.Job, position int) *pyjson.Object {
	status := string(j.State)
	if j.State == job.Leased {
		status = string(job.Running)
	}
	place := pyjson.Value(pyjson.Null{})
	if position >= 0 {
		place = pyjson.Int(int64(position))
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
		pyjson.Member{Key: "error", Value: pyjson.String(j.Reason)},
		pyjson.Member{Key: "lost", Value: pyjson.Strings(j.Lost)},
	)
}

// postJobCancel answers POST /hub/jobs/{id}/cancel, wherever the job is.
func (h *Hub) postJobCancel(w http.ResponseWriter, r *http.Request, a asker, path []string) {
	j, err := h.find(r.Context(), a.tenant, path[0])
	if err == nil && j.Key != "" && j.State.Live() {
		err = h.stop(r.Context(), j)
		if err == nil {
			writeJSON(w, http.StatusOK, []byte(`{"cancelled": true}`))
			return
		}
	}
	if err != nil {
		h.fault(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, []byte(`{"cancelled": false}`))
}

// getStats answers GET /hub/stats: the fleet in a few numbers.
func (h *Hub) getStats(w http.ResponseWriter, r *http.Request, _ asker, _ []string) {
	live, waiting, err := h.queue.CountAll(r.Context())
	if err != nil {
		h.fault(w, r, err)
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
	writeValue(w, pyjson.NewObject(
		pyjson.Member{Key: "queued", Value: pyjson.Int(int64(waiting))},
		pyjson.Member{Key: "running", Value: pyjson.Int(int64(live - waiting))},
		pyjson.Member{Key: "sockets", Value: pyjson.Int(int64(h.streams.Sockets()))},
		pyjson.Member{Key: "instances", Value: states},
	))
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
