package comfyv2

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/view"
)

// jobEvents is a stream of the events of a job.
type jobEvents struct {
	jobs

	a   api.Requester
	out api.EventWriter
	// last is the job as it was told, and progressed the progress.
	last       view.JobView
	progressed string
	// picture is the preview that was sent last.
	picture []byte
}

const (
	// lookEvery is the pause between two looks at what a job is doing.
	lookEvery = 500 * time.Millisecond
	// maxPicture bounds a preview, in bytes. ComfyUI's are some ten thousand.
	maxPicture = 1 << 20
)

// getEvents answers GET /api/v2/jobs/{id}/events with server-sent events: status, progress,
// preview, output and, last, the status in which the job has ended. It begins with the job as it is, so
// that a client that connects again misses nothing that counts.
func (o jobs) getEvents(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	j, err := o.find(r.Context(), a, path[0])
	if err != nil {
		o.failJob(w, r, err)
		return
	}
	api.Translating(streamsFull, func(held http.ResponseWriter, _ *http.Request, _ api.Requester, _ []string) {
		if ctx, release, ok := o.Hold(held, r, a); ok {
			defer release()
			o.stream(ctx, w, r, a, j)
		}
	})(w, r, a, path)
}

// stream sends the events of a job.
func (o jobs) stream(ctx context.Context, w http.ResponseWriter, r *http.Request, a api.Requester, j view.JobView) {
	news, stop := o.hub().Watches.Watch(j.Job)
	defer stop()
	e := &jobEvents{jobs: o, a: a, out: api.WriteEvents(w), last: j}
	defer e.out.Close()
	if r.Method == http.MethodHead || e.begin(ctx) != nil {
		return
	}
	tick, look := time.NewTicker(api.EventBeat), time.NewTicker(lookEvery)
	defer tick.Stop()
	defer look.Stop()
	var err error
	for !e.last.State.Ended() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			err = e.out.Beat()
		case <-look.C:
			err = e.progress()
		case now, there := <-news:
			err = e.next(ctx, now, there)
		}
		if err != nil { // the client connects again
			return
		}
	}
}

// streamsFull is why there is no stream of events, with the code that clients know.
func streamsFull(status int, answer []byte) *pyjson.Object {
	o := problemOf(status, answer)
	if fault := o.Object("error"); fault.String("code") == "tenant_sockets_full" || fault.String("code") == "too_many_sockets" {
		fault.Set("code", pyjson.String(codeStreams))
	}
	return o
}

// begin sends the job as it is.
func (e *jobEvents) begin(ctx context.Context) error {
	if e.last.State.Ended() {
		return e.end(ctx)
	}
	if err := e.status(); err != nil {
		return err
	}
	return e.progress()
}

// next sends what has changed; there is false for a job that is gone.
func (e *jobEvents) next(ctx context.Context, now job.Job, there bool) error {
	before := e.last
	j, err := view.JobView{}, view.ErrNoJob
	if there {
		j, err = e.find(ctx, e.a, now.ID)
	}
	switch {
	case errors.Is(err, view.ErrNoJob), err == nil && j.Key != before.Key:
		e.last = vanished(before)
	case err != nil:
		return err
	default:
		e.last = j
	}
	if e.last.State.Ended() {
		return e.end(ctx)
	}
	if statusOf(e.last.State) != statusOf(before.State) || e.last.Position != before.Position {
		if err := e.status(); err != nil {
			return err
		}
	}
	return e.progress()
}

// end sends the outputs and the last status.
func (e *jobEvents) end(ctx context.Context) error {
	ended, err := e.outcome(ctx, e.a, e.last.Job)
	if err != nil {
		return err
	}
	outputs, err := e.outputValues(ctx, e.a, e.last.ID, ended.outputs, maxSized)
	if err != nil {
		return err
	}
	for _, out := range outputs {
		if err := e.send("output", out); err != nil {
			return err
		}
	}
	return e.status()
}

func (e *jobEvents) status() error {
	o := object("status", pyjson.String(statusOf(e.last.State)))
	if e.last.Position >= 0 {
		o.Set("queue_position", place(e.last.Position))
	}
	return e.send("status", o)
}

// progress sends how far a running job is, and what it shows, if that is new.
func (e *jobEvents) progress() error {
	p, ok := progressOf(e.last.Job).(*pyjson.Object)
	if !ok {
		return nil
	}
	now := e.hub().Insight.Doing(e.last.Job)
	p.Set("current_node", text(now.Node))
	p.Set("current_node_class", text(now.Class))
	if progressed := string(pyjson.Marshal(p)); progressed != e.progressed {
		e.progressed = progressed
		if err := e.send("progress", p); err != nil {
			return err
		}
	}
	if now.Kind == "" || len(now.Picture) > maxPicture || bytes.Equal(now.Picture, e.picture) {
		return nil
	}
	e.picture = now.Picture
	return e.send("preview", object(
		"node_id", pyjson.String(now.Node), "content_type", pyjson.String(now.Kind), "data_base64", pyjson.String(base64.StdEncoding.EncodeToString(now.Picture)),
	))
}

func (e *jobEvents) send(event string, v pyjson.Value) error {
	return e.out.Send(event, pyjson.Strict(pyjson.Marshal(v)))
}
