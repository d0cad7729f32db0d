package sdapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/links"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/retry"
	"github.com/comfyhub/comfyhub/internal/view"
)

// follow waits for the end of a job and answers with what has become of it. It cancels the
// job if its client goes, or if the hub stops: the client is told of an error then.
func (o jobMakers) follow(ctx context.Context, r *http.Request, a api.Requester, asked request, out *answerWriter) {
	j, err := o.wait(ctx, a, asked.id, out)
	switch {
	case ctx.Err() != nil || errors.Is(err, errUnread):
		if r.Context().Err() == nil && err == nil {
			out.fail(http.StatusServiceUnavailable, exception("HTTPException", "The hub is shutting down"))
		}
		o.leave(a, asked.id)
	case err != nil:
		o.fail(r, out, err)
	case j.State == job.Done:
		o.answer(ctx, r, a, j, asked, out)
	case j.State == job.Failed:
		o.answerFailure(ctx, r, a, j, out)
	default:
		o.answerCancelled(asked, out)
	}
}

// wait waits until a job has ended, and shows its client signs of life. A job that is gone is
// cancelled.
func (o jobMakers) wait(ctx context.Context, a api.Requester, id string, out *answerWriter) (job.Job, error) {
	j, err := o.find(ctx, a, id)
	if err != nil || j.Key == "" {
		j.State = job.Cancelled
		return j, err
	}
	news, stop := o.hub().Watches.Watch(j)
	defer stop()
	alarm := time.NewTimer(quiet)
	defer alarm.Stop()
	for j.State.Live() {
		select {
		case <-ctx.Done():
			return j, nil
		case <-alarm.C:
			if err := out.beat(); err != nil {
				return j, errUnread
			}
			alarm.Reset(beat)
		case now, there := <-news:
			if !there {
				j.State = job.Cancelled
				return j, nil
			}
			j = now
		}
	}
	return j, nil
}

// errUnread means that the client does not read.
var errUnread = errors.New("sdapi: the client stopped reading")

// find finds a job that was just taken, also if Redis is away for a moment.
func (o jobMakers) find(ctx context.Context, a api.Requester, id string) (job.Job, error) {
	finding, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	pauses := retry.New(firstPause, mostPause)
	for {
		j, err := o.hub().Jobs.Find(finding, a.Tenant, id)
		if err == nil || finding.Err() != nil {
			return j, err
		}
		pauses.Wait(finding)
	}
}

// fail answers with an error of the hub itself.
func (o jobMakers) fail(r *http.Request, out *answerWriter, err error) {
	if !out.begun {
		o.Fail(out.w, r, err)
		return
	}
	o.Log().Error("an answer of A1111's API failed", "error", err)
	out.fail(http.StatusInternalServerError, exception("RuntimeError", "The hub has no answer"))
}

// entry reads what the history has of a job; use must not keep it.
func (o jobMakers) entry(ctx context.Context, a api.Requester, j job.Job, use func(comfyui.Entry)) error {
	entry, err := o.hub().Jobs.Outcome(ctx, j)
	if err != nil {
		return err
	}
	raw, release, err := o.Unpack(ctx, a, entry)
	if err != nil {
		return err
	}
	defer release()
	parsed, _ := comfyui.ParseEntry(raw)
	use(parsed)
	return nil
}

// answer answers with what the server has answered.
func (o jobMakers) answer(ctx context.Context, r *http.Request, a api.Requester, j job.Job, asked request, out *answerWriter) {
	var answer a1111.Answer
	var odd error
	err := o.entry(ctx, a, j, func(e comfyui.Entry) {
		v, _ := pyjson.Parse(e.Outputs)
		outputs, _ := v.(*pyjson.Object)
		answer, odd = a1111.ReadAnswer(asked.class, outputs.Object(a1111.JobNode))
	})
	var pictures []links.File
	if err = errors.Join(err, odd); err == nil {
		if asked.hidden {
			answer.Hide()
		}
		pictures, err = o.pictures(ctx, a, answer)
	}
	if err != nil {
		o.fail(r, out, err)
		return
	}
	out.begin(answer.Length(func(place int) int64 { return pictures[place].Size }))
	err = answer.Write(out, func(place int) (io.ReadCloser, error) { return pictures[place].Open(ctx, 0, pictures[place].Size) })
	if err != nil {
		o.Log().Debug("an answer of A1111's API was cut", "error", err)
		out.abort()
	}
}

// pictures are the files of the pictures of an answer.
func (o jobMakers) pictures(ctx context.Context, a api.Requester, answer a1111.Answer) ([]links.File, error) {
	var all []links.File
	for _, p := range answer.Pictures {
		f, err := o.hub().Links.File(ctx, a.Tenant, job.FileRef{Filename: p.String("filename"), Subfolder: p.String("subfolder"), Type: p.String("type")})
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// answerFailure answers with the server's own error, or with why there is no answer.
func (o jobMakers) answerFailure(ctx context.Context, r *http.Request, a api.Requester, j job.Job, out *answerWriter) {
	status, problem := http.StatusInternalServerError, exception("RuntimeError", j.Reason)
	err := o.entry(ctx, a, j, func(e comfyui.Entry) {
		v, _ := pyjson.Parse(e.EndData)
		data, _ := v.(*pyjson.Object)
		if code, answer, ok := a1111.Refusal(data); ok {
			status, problem = code, answer
		} else if text := data.String("exception_message"); text != "" {
			problem = exception(data.String("exception_type"), text)
		}
	})
	if err != nil && !errors.Is(err, view.ErrNoJob) {
		o.fail(r, out, err)
		return
	}
	out.fail(status, problem)
}

// answerCancelled answers as A1111 does to a request that was interrupted before its first
// picture.
func (o jobMakers) answerCancelled(asked request, out *answerWriter) {
	answer, err := a1111.NoPictures(asked.class)
	if err != nil {
		out.fail(http.StatusInternalServerError, exception("RuntimeError", "The job was cancelled"))
		return
	}
	out.begin(answer.Length(nil))
	if answer.Write(out, nil) != nil {
		out.abort()
	}
}

// writeTimeout is how long a client may take to read a part of an answer.
const writeTimeout = time.Minute

// answerWriter writes the answer of a request that may have been kept alive by white space
// before.
type answerWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	// begun means that the status is sent.
	begun bool
}

// Write implements [io.Writer]. A client that does not read is cut off.
func (o *answerWriter) Write(p []byte) (int, error) {
	_ = o.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // some writers have none
	return o.w.Write(p)
}

// close takes the deadline back: the connection may serve further requests.
func (o *answerWriter) close() { _ = o.control.SetWriteDeadline(time.Time{}) }

// begin sends the header of a good answer; length is that of the body in bytes, -1 if it is
// not known.
func (o *answerWriter) begin(length int64) {
	if o.begun {
		return
	}
	o.begun = true
	h := o.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store, no-transform") // compressing pictures costs time and gains nothing
	h.Set("X-Accel-Buffering", "no")                 // nginx would hold the signs of life back
	if length >= 0 {
		h.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	o.w.WriteHeader(http.StatusOK)
}

// beat sends white space, which may stand before JSON: proxies and clients cut connections
// that are silent.
func (o *answerWriter) beat() error {
	o.begin(-1)
	if _, err := o.Write([]byte(" ")); err != nil {
		return err
	}
	return o.control.Flush()
}

// fail answers with an error. If the status has been sent already it cannot say that: the
// error is sent as the body, and the connection is cut, so that no client takes it for an
// answer.
func (o *answerWriter) fail(status int, problem *pyjson.Object) {
	if !o.begun {
		writeProblem(o.w, status, problem)
		return
	}
	if _, err := o.Write(pyjson.Strict(pyjson.Marshal(problem))); err == nil {
		_ = o.control.Flush()
	}
	o.abort()
}

// abort cuts the connection.
func (o *answerWriter) abort() { panic(http.ErrAbortHandler) }
