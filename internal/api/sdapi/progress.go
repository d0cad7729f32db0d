package sdapi

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// getProgress answers GET /progress about the requester's job that runs longest, else about
// the first that waits.
func (o tasks) getProgress(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	own, err := o.jobs(r.Context(), a)
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	if len(own) == 0 {
		api.WriteValue(w, progressValue(0, 0, 0, pyjson.Null{}))
		return
	}
	skip := pyjson.Bool(slices.Contains([]string{"true", "1", "yes", "on", "y", "t"}, strings.ToLower(api.QueryOf(r).Get(a1111.SkipImageKey))))
	api.WriteDetail(w, o.progress(r.Context(), a, own[0], bool(skip)))
}

// progress is how far a job is, as the server says that runs it.
func (o tasks) progress(ctx context.Context, a api.Requester, j job.Job, skipImage bool) *pyjson.Object {
	if server, run, ok := o.server(j); ok {
		if skipImage {
			run.Set(a1111.SkipImageKey, "true")
		}
		if body, err := server.Get(ctx, a1111.ProgressPath, run); err == nil {
			v, _ := pyjson.Parse(body)
			if seen, ok := v.(*pyjson.Object); ok {
				return seen
			}
		}
	}
	return o.outlook(ctx, a, j)
}

// outlook is how far a job is that waits, or has just begun.
func (o tasks) outlook(ctx context.Context, a api.Requester, j job.Job) *pyjson.Object {
	eta, text := time.Duration(0), pyjson.Value(pyjson.Null{})
	if seen, err := o.hub().Insight.Job(ctx, a.Viewer(), j.ID); err == nil && seen.Key == j.Key {
		eta = max(seen.ETA, 0)
		if seen.State == job.Queued {
			text = pyjson.String("Waiting...")
			if seen.Position >= 0 {
				text = pyjson.String("In queue: " + strconv.Itoa(seen.Position+1))
			}
		}
	}
	return progressValue(j.Progress, eta.Seconds(), 1, text)
}

// progressValue is an answer of /progress; jobs is 1 for somebody whose request is not done.
func progressValue(share, eta float64, jobs int64, text pyjson.Value) *pyjson.Object {
	name := ""
	if jobs > 0 {
		name = "ComfyHub"
	}
	return pyjson.NewObject(
		pyjson.Member{Key: "progress", Value: pyjson.Float(share)},
		pyjson.Member{Key: "eta_relative", Value: pyjson.Float(eta)},
		pyjson.Member{Key: "state", Value: pyjson.NewObject(
			pyjson.Member{Key: "skipped", Value: pyjson.Bool(false)},
			pyjson.Member{Key: "interrupted", Value: pyjson.Bool(false)},
			pyjson.Member{Key: "stopping_generation", Value: pyjson.Bool(false)},
			pyjson.Member{Key: "job", Value: pyjson.String(name)},
			pyjson.Member{Key: "job_count", Value: pyjson.Int(jobs)},
			pyjson.Member{Key: "job_timestamp", Value: pyjson.String("0")},
			pyjson.Member{Key: "job_no", Value: pyjson.Int(0)},
			pyjson.Member{Key: "sampling_step", Value: pyjson.Int(0)},
			pyjson.Member{Key: "sampling_steps", Value: pyjson.Int(0)},
		)},
		pyjson.Member{Key: "current_image", Value: pyjson.Null{}},
		pyjson.Member{Key: "textinfo", Value: text},
	)
}

// postTask answers POST /internal/progress about one of the requester's tasks, by the id that
// the client has chosen.
func (o tasks) postTask(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	v, body, ok := o.readJSON(w, r, a, api.SmallBody)
	if !ok {
		return
	}
	defer body.Close()
	asked, err := object(v)
	task := ""
	if err == nil {
		task, err = text(asked, "id_task")
	}
	if err != nil {
		refuseRequest(w, err)
		return
	}
	own, err := o.jobs(r.Context(), a)
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	preview, _ := asked.Get("live_preview")
	for _, j := range own {
		if task != "" && taskOf(j.ID) == task {
			api.WriteDetail(w, taskValue(j, o.progress(r.Context(), a, j, preview == pyjson.Bool(false))))
			return
		}
	}
	done, err := o.isDone(r.Context(), a, task)
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	api.WriteValue(w, taskAnswer(false, false, done, pyjson.Null{}, pyjson.Null{}, pyjson.Null{}, pyjson.String("Waiting...")))
}

// taskValue is a live task, given its answer of /progress.
func taskValue(j job.Job, progress *pyjson.Object) *pyjson.Object {
	share, _ := progress.Get("progress")
	eta, _ := progress.Get("eta_relative")
	info, _ := progress.Get("textinfo")
	preview := pyjson.Value(pyjson.Null{})
	if image := progress.String("current_image"); image != "" {
		preview = pyjson.String("data:image/png;base64," + image)
	}
	return taskAnswer(isRunning(j), !isRunning(j), false, share, eta, preview, info)
}

func taskAnswer(active, queued, completed bool, share, eta, preview, text pyjson.Value) *pyjson.Object {
	return pyjson.NewObject(
		pyjson.Member{Key: "active", Value: pyjson.Bool(active)},
		pyjson.Member{Key: "queued", Value: pyjson.Bool(queued)},
		pyjson.Member{Key: "completed", Value: pyjson.Bool(completed)},
		pyjson.Member{Key: "progress", Value: share},
		pyjson.Member{Key: "eta", Value: eta},
		pyjson.Member{Key: "live_preview", Value: preview},
		pyjson.Member{Key: "id_live_preview", Value: pyjson.Int(-1)},
		pyjson.Member{Key: "textinfo", Value: text},
	)
}

// isDone reports whether one of the requester's last jobs was a task.
func (o tasks) isDone(ctx context.Context, a api.Requester, task string) (bool, error) {
	if task == "" {
		return false, nil
	}
	own := o.Recent.Owner(a)
	ended, err := o.hub().Jobs.Ended(ctx, a.Tenant)
	return slices.ContainsFunc(ended, func(e view.EndedJob) bool {
		return strings.HasPrefix(e.Job.ID, idPrefix) && taskOf(e.Job.ID) == task && own.Has(e.Job)
	}), err
}

// getPendingTasks answers GET /internal/pending-tasks: the requester's tasks that wait.
func (o tasks) getPendingTasks(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	own, err := o.jobs(r.Context(), a)
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	tasks := []string{}
	for _, j := range own {
		if task := taskOf(j.ID); task != "" && !isRunning(j) {
			tasks = append(tasks, task)
		}
	}
	api.WriteValue(w, pyjson.NewObject(
		pyjson.Member{Key: "size", Value: pyjson.Int(int64(len(tasks)))},
		pyjson.Member{Key: "tasks", Value: pyjson.Strings(tasks)},
	))
}
