// Package overflowtest imitates serverless endpoints for tests: RunPod's API as its documentation and
// worker-comfyui have it, and a service of the hub's own contract.
package overflowtest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Fault is what happens to a call.
type Fault int

const (
	// NoFault lets a call through.
	NoFault Fault = iota
	// Away lets it reach nobody.
	Away
	// Lost lets it happen, and loses the answer.
	Lost
	// Broken lets it happen, and a proxy answers with 502.
	Broken
)

// Endpoint is a fake endpoint. It takes the place of the network, see egress.Options, or serves
// requests.
type Endpoint struct {
	// Key is the one that it wants.
	Key string
	// Waits and Takes are how long runs wait and take.
	Waits, Takes time.Duration
	// Hook is called before each call, such as "POST /run", and says what happens to it. May be nil.
	Hook func(call string) Fault
	// Fails is the error of all runs that begin, empty for none.
	Fails string
	// Old makes it answer like versions of worker-comfyui before 5.
	Old bool
	// Link returns the URL of a file in place of the file. May be nil.
	Link func(name string) string
	// Draw makes the picture of an output node. Default: Picture.
	Draw func(w Workflow, node string) []byte

	mu   sync.Mutex
	runs map[string]*remoteRun
	made int
}

// remoteRun is one of the endpoint's.
type remoteRun struct {
	id, key  string
	workflow Workflow
	images   map[string]string
	began    time.Time
	ends     time.Time
	ended    string // a state that it has been brought to
	stopped  time.Time
	at       time.Time
}

// Workflow is a graph, by node.
type Workflow map[string]Node

// Node is one of a graph.
type Node struct {
	ClassType string         `json:"class_type"`
	Inputs    map[string]any `json:"inputs"`
}

// Runs returns how many runs were begun, and how many of them were cancelled before their end.
func (e *Endpoint) Runs() (all, cancelled int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.runs {
		if r.ended == "CANCELLED" {
			cancelled++
		}
	}
	return len(e.runs), cancelled
}

// Bill is what there is to pay for a run.
type Bill struct {
	Workflow Workflow
	// Over is whether the run has ended.
	Over bool
	// For is the time, with the wait for a worker.
	For time.Duration
}

// Bills returns those of all runs.
func (e *Endpoint) Bills() []Bill {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Bill
	for _, r := range e.runs {
		b := Bill{Workflow: r.workflow}
		switch e.state(r) {
		case "IN_QUEUE", "IN_PROGRESS":
			b.For = time.Since(r.at)
		case "CANCELLED":
			b.Over, b.For = true, r.stopped.Sub(r.at)
		default:
			b.Over, b.For = true, r.ends.Sub(r.at)
		}
		all = append(all, b)
	}
	return all
}

// Images returns the input files of the last run, by name.
func (e *Endpoint) Images() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.runs["run-"+strconv.Itoa(e.made)].images)
}

// RoundTrip implements [http.RoundTripper].
func (e *Endpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	fault := NoFault
	if e.Hook != nil {
		fault = e.Hook(r.Method + " " + callOf(r.URL.Path))
	}
	if fault == Away {
		return nil, errors.New("connection refused")
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	switch fault {
	case Lost:
		return nil, errors.New("connection reset by peer")
	case Broken:
		w = httptest.NewRecorder()
		w.WriteHeader(http.StatusBadGateway)
	case NoFault, Away:
	}
	return w.Result(), nil
}

// callOf is the name of what is called, without ids.
func callOf(path string) string {
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if slices.Contains([]string{"run", "runs", "status", "cancel", "health", "file"}, part) {
			return "/" + part
		}
	}
	return path
}

// ServeHTTP implements [http.Handler].
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	call := callOf(r.URL.Path)
	id := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if call == "/file" {
		_, _ = w.Write(picture(id))
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+e.Key {
		http.Error(w, `{"error": "unauthorized"}`, http.StatusUnauthorized)
		return
	}
	switch r.Method + " " + call {
	case "POST /run":
		e.start(w, r)
	case "POST /runs":
		e.startOnce(w, r)
	case "GET /status", "GET /runs":
		e.status(w, id, call == "/runs")
	case "POST /cancel", "DELETE /runs":
		e.cancel(w, id)
	case "GET /health":
		answer(w, map[string]any{"jobs": map[string]int{"inQueue": 0}, "workers": map[string]int{"idle": 0, "running": 0}})
	default:
		http.NotFound(w, r)
	}
}

// start answers POST /run. It is as strict as worker-comfyui is.
func (e *Endpoint) start(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Input struct {
			Workflow Workflow `json:"workflow"`
			Images   []struct {
				Name  string `json:"name"`
				Image string `json:"image"`
			} `json:"images"`
		} `json:"input"`
		Policy struct {
			ExecutionTimeout int64 `json:"executionTimeout"`
			TTL              int64 `json:"ttl"`
		} `json:"policy"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 10_000_000)).Decode(&body); err != nil || len(body.Input.Workflow) == 0 {
		http.Error(w, `{"error": "bad request"}`, http.StatusBadRequest)
		return
	}
	if body.Policy.ExecutionTimeout <= 5000 || body.Policy.TTL < 10000 {
		http.Error(w, `{"error": "policy"}`, http.StatusBadRequest)
		return
	}
	images := map[string]string{}
	for _, i := range body.Input.Images {
		content, err := base64.StdEncoding.DecodeString(i.Image)
		if err != nil || strings.Contains(i.Name, "/") {
			http.Error(w, `{"error": "images"}`, http.StatusBadRequest)
			return
		}
		images[i.Name] = string(content)
	}
	run := e.add("", body.Input.Workflow, images)
	answer(w, map[string]any{"id": run.id, "status": "IN_QUEUE"})
}

// startOnce answers POST /runs of the contract.
func (e *Endpoint) startOnce(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	var body struct {
		Workflow Workflow            `json:"workflow"`
		Files    []map[string]string `json:"files"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Workflow) == 0 || key == "" {
		http.Error(w, `{"error": "bad request"}`, http.StatusBadRequest)
		return
	}
	for _, run := range e.runs {
		if run.key == key {
			answer(w, map[string]any{"id": run.id})
			return
		}
	}
	images := map[string]string{}
	for _, f := range body.Files {
		content, _ := base64.StdEncoding.DecodeString(f["data"])
		images[f["name"]] = string(content)
	}
	answer(w, map[string]any{"id": e.add(key, body.Workflow, images).id})
}

func (e *Endpoint) add(key string, workflow Workflow, images map[string]string) *remoteRun {
	e.made++
	now := time.Now()
	run := &remoteRun{id: "run-" + strconv.Itoa(e.made), key: key, workflow: workflow, images: images, at: now, began: now.Add(e.Waits), ends: now.Add(e.Waits + e.Takes)}
	if e.runs == nil {
		e.runs = map[string]*remoteRun{}
	}
	e.runs[run.id] = run
	return run
}

func (e *Endpoint) status(w http.ResponseWriter, id string, contract bool) {
	run := e.runs[id]
	if run == nil {
		http.Error(w, `{"error": "job not found"}`, http.StatusNotFound)
		return
	}
	state := e.state(run)
	if contract {
		answer(w, e.told(run, state))
		return
	}
	out := map[string]any{"id": id, "status": state}
	switch state {
	case "IN_PROGRESS":
		out["output"] = map[string]any{"type": "progress", "value": 1, "max": 4, "percent": 25.0}
	case "FAILED":
		out["error"] = e.Fails
	case "COMPLETED":
		out["output"] = e.output(run)
		out["delayTime"], out["executionTime"] = e.Waits.Milliseconds(), e.Takes.Milliseconds()
	}
	answer(w, out)
}

// told is what a service of the contract says.
func (e *Endpoint) told(run *remoteRun, state string) map[string]any {
	out := map[string]any{"status": map[string]string{
		"IN_QUEUE": "queued", "IN_PROGRESS": "running", "COMPLETED": "succeeded", "FAILED": "failed", "CANCELLED": "cancelled",
	}[state], "seconds": (e.Waits + e.Takes).Seconds()}
	if state == "FAILED" {
		out["error"] = e.Fails
	}
	if state == "COMPLETED" {
		var files []map[string]string
		for _, id := range outputsOf(run.workflow) {
			files = append(files, map[string]string{"node": id, "name": "x.png", "data": base64.StdEncoding.EncodeToString(e.draw(run, id))})
		}
		out["files"] = files
	}
	return out
}

func (e *Endpoint) state(run *remoteRun) string {
	now := time.Now()
	switch {
	case run.ended != "":
		return run.ended
	case now.Before(run.began):
		return "IN_QUEUE"
	case now.Before(run.ends):
		return "IN_PROGRESS"
	case e.Fails != "":
		return "FAILED"
	}
	return "COMPLETED"
}

func (e *Endpoint) output(run *remoteRun) map[string]any {
	var images []map[string]string
	for _, id := range outputsOf(run.workflow) {
		prefix, _ := run.workflow[id].Inputs["filename_prefix"].(string)
		name := fmt.Sprintf("%s_00001_.png", prefix[strings.LastIndex(prefix, "/")+1:])
		image := map[string]string{"filename": name, "type": "base64", "data": base64.StdEncoding.EncodeToString(e.draw(run, id))}
		if e.Link != nil {
			image["type"], image["data"] = "s3_url", e.Link(id)
		}
		images = append(images, image)
	}
	if e.Old {
		return map[string]any{"status": "success", "message": images[len(images)-1]["data"]}
	}
	return map[string]any{"images": images}
}

func (e *Endpoint) cancel(w http.ResponseWriter, id string) {
	run := e.runs[id]
	if run == nil {
		http.Error(w, `{"error": "job not found"}`, http.StatusNotFound)
		return
	}
	if s := e.state(run); s == "IN_QUEUE" || s == "IN_PROGRESS" {
		run.ended, run.stopped = "CANCELLED", time.Now()
	}
	answer(w, map[string]any{"id": id, "status": e.state(run)})
}

func (e *Endpoint) draw(r *remoteRun, node string) []byte {
	if e.Draw != nil {
		return e.Draw(r.workflow, node)
	}
	return picture(node)
}

// outputsOf are the nodes that save pictures.
func outputsOf(workflow Workflow) (ids []string) {
	for id, n := range workflow {
		if n.ClassType == "SaveImage" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
