package pull

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/worker"
)

const (
	// maxWait bounds how long GET /next-job is held: proxies cut requests that are
	// silent for longer.
	maxWait = time.Minute
	// maxClasses bounds the names in the parameter classes.
	maxClasses = 500
	// defaultWorker is the worker of a machine that has no other.
	defaultWorker = "worker"
)

// abilities are what a worker can run: object_info may be large.
var abilities = intake.Class{Limit: 32 << 20, Values: 2_000_000}

// seconds reads a number of seconds; 0 for none.
func seconds(text string) (time.Duration, bool) {
	if text == "" {
		return 0, true
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || n < 0 {
		return 0, false
	}
	return time.Duration(min(n, 1e6) * float64(time.Second)), true
}

// workerOf is what a worker is called: programs for two GPUs are two workers.
func workerOf(q url.Values) string {
	id := q.Get("worker_id")
	if id == "" {
		id = defaultWorker
	}
	if gpu := q.Get("gpu_id"); gpu != "" {
		id += "." + gpu
	}
	return id
}

// getNext answers GET /next-job: with a job, or {"status": "no_jobs"} at once or after ?wait=
// seconds.
func (o *room) getNext(w http.ResponseWriter, r *http.Request, c call) {
	q := api.QueryOf(r)
	wait, ok := seconds(q.Get("wait"))
	lease, ok2 := seconds(q.Get("lease"))
	switch service := q.Get("service"); {
	case !ok || !ok2:
		fail(w, http.StatusBadRequest, "wait and lease: must be numbers of seconds")
		return
	case service != "" && service != "comfyui":
		fail(w, http.StatusBadRequest, "service: must be comfyui")
		return
	}
	one, err := o.workerFor(c, q)
	if err != nil {
		o.refuse(w, r, err)
		return
	}
	ctx, cancel := o.hub().Workers.Wait(r.Context(), min(wait, maxWait))
	defer cancel()
	job, err := one.Next(ctx, lease)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		answer(w, http.StatusOK, "no_jobs")
		return
	case err != nil:
		o.refuse(w, r, err)
		return
	}
	if r.Context().Err() != nil || !write(w, pyjson.Strict(pyjson.Marshal(jobObject(job, c.Base)))) {
		one.Return(job.ID)
	}
}

// write sends an answer and reports whether the connection has taken it.
func write(w http.ResponseWriter, body []byte) bool {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, err := w.Write(body)
	return err == nil && http.NewResponseController(w).Flush() == nil
}

// workerFor is the worker that asks.
func (o *room) workerFor(c call, q url.Values) (*worker.Worker, error) {
	names := strings.FieldsFunc(q.Get("classes"), func(r rune) bool { return r == ',' || r == ' ' })
	if len(names) == 0 {
		return o.hub().Workers.Find(c.machine, workerOf(q))
	}
	return o.hub().Workers.Named(c.machine, workerOf(q), names[:min(len(names), maxClasses)], q.Get("gpu"))
}

// jobObject is a job as a worker gets it.
func jobObject(j worker.Job, base string) *pyjson.Object {
	inputs := pyjson.Array{}
	for _, name := range j.Inputs {
		inputs = append(inputs, pyjson.NewObject(
			pyjson.Member{Key: "name", Value: pyjson.String(name)},
			pyjson.Member{Key: "url", Value: pyjson.String(base + prefix + inputPath + url.PathEscape(j.ID) + "?name=" + url.QueryEscape(name))},
		))
	}
	return statusObject("assigned",
		pyjson.Member{Key: "id", Value: pyjson.String(j.ID)},
		pyjson.Member{Key: "service", Value: pyjson.String("comfyui")},
		pyjson.Member{Key: "workflow", Value: j.Graph},
		pyjson.Member{Key: "extra_data", Value: j.Extra},
		pyjson.Member{Key: "outputs", Value: pyjson.Strings(j.Outputs)},
		pyjson.Member{Key: "inputs", Value: inputs},
		pyjson.Member{Key: "lease", Value: pyjson.Float(j.Lease.Seconds())},
	)
}

// postWorker answers POST /hub/v1/workers/ID: a worker says what it can run, by object_info
// or by the names of classes.
func (o *room) postWorker(w http.ResponseWriter, r *http.Request, c call) {
	v, done, ok := o.ReadJSON(w, r, c.Requester, abilities)
	if !ok {
		return
	}
	defer done()
	body, _ := v.(*pyjson.Object)
	names := texts(body.Array("classes"))
	info := body.Object("object_info")
	var err error
	switch {
	case info.Len() > 0:
		_, err = o.hub().Workers.Enlist(c.machine, c.id, body.String("gpu"), pyjson.Marshal(info))
	case len(names) > 0 && len(names) <= maxClasses:
		_, err = o.hub().Workers.Named(c.machine, c.id, names, body.String("gpu"))
	default:
		fail(w, http.StatusBadRequest, "object_info: must be that of the worker's ComfyUI; or classes: up to 500 names of node classes that it runs")
		return
	}
	if err != nil {
		o.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, "updated")
}

func texts(list pyjson.Array) []string {
	var all []string
	for _, v := range list {
		if text, ok := v.(pyjson.String); ok {
			all = append(all, string(text))
		}
	}
	return all
}
