package request

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// job is one request while it is driven: it goes from phase to phase, and its parts say
// and send what there is. Only its goroutine uses it, except for what a mutex guards.
type job struct {
	r        *Runner
	rec      *Record
	platform platform.Platform
	prog     *progress
	cancels  chan struct{}
	away     absence

	entry    *entry
	words    *wording
	files    *outputFiles
	status   *statusMessage
	delivery *delivery
}

// newJob returns a job for a request whose command has so many nodes.
func newJob(r *Runner, rec Record, version int64, p platform.Platform, nodes int) *job {
	j := &job{r: r, rec: &rec, platform: p, prog: newProgress(nodes), cancels: make(chan struct{}, 1)}
	j.entry = &entry{store: r.o.Store, logger: r.o.Logger, observe: r.o.Observe, load: r.load, platform: p, rec: &rec, version: version}
	j.words = &wording{texts: r.o.Texts, command: r.o.Command, moderate: r.o.Judge, upscale: r.o.Upscale, vary: r.o.Vary, rec: &rec, prog: j.prog, away: &j.away}
	j.files = &outputFiles{hub: r.o.Hub, logger: r.o.Logger, links: r.o.Links, command: r.o.Command, moderate: r.o.Judge, sheets: r.sheets, platform: p, rec: &rec, entry: j.entry}
	j.status = &statusMessage{store: r.o.Store, outbox: r.o.Outbox, logger: r.o.Logger, platform: p, rec: &rec, entry: j.entry, words: j.words, told: make(chan struct{})}
	j.delivery = &delivery{outbox: r.o.Outbox, logger: r.o.Logger, replaces: r.o.InPlace, platform: p, rec: &rec, entry: j.entry, words: j.words, files: j.files}
	return j
}

// Pauses after a failed step.
const (
	firstPause = 200 * time.Millisecond
	maxPause   = 10 * time.Second
)

// drive takes steps until the request is over. Each step is recorded before it starts, so a
// failed one can be repeated.
func (j *job) drive(ctx context.Context) {
	if j.platform == nil {
		j.r.o.Logger.Error("a request waits for a platform that is not configured", "platform", j.rec.Platform)
		return
	}
	pauses := retry.New(firstPause, maxPause)
	for j.rec.Phase != Over {
		err := j.step(ctx)
		switch {
		case err == nil:
			pauses.Reset()
			continue
		case ctx.Err() != nil, errors.Is(err, state.ErrDeposed), errors.Is(err, state.ErrNotFound):
			return
		case errors.Is(err, state.ErrStale):
			j.r.o.Logger.Warn("a request was changed by another process", "request", j.rec.ID)
			if err := j.entry.reload(ctx); errors.Is(err, state.ErrNotFound) {
				return
			}
		case errors.Is(err, hubapi.ErrUnavailable):
			j.hubAway(ctx)
		default:
			j.r.o.Logger.Warn("a step of a request failed", "request", j.rec.ID, "phase", j.rec.Phase, "error", err)
		}
		if !j.sleep(ctx, pauses.Next()) {
			return
		}
	}
}

func (j *job) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-j.cancels:
		// If it cannot be recorded, the next step will run into the same problem.
		if err := j.status.wantCancel(ctx); err != nil {
			j.r.o.Logger.Warn("cannot record that a request is cancelled", "request", j.rec.ID, "error", err)
		}
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (j *job) step(ctx context.Context) error {
	if _, err := j.moveAlong(ctx); err != nil {
		return err
	}
	switch j.rec.Phase {
	case New:
		return j.prepare(ctx)
	case Ready:
		return j.submit(ctx)
	case Queued:
		return j.follow(ctx)
	case Ended:
		return j.delivery.deliver(ctx)
	case Over:
	}
	return nil
}

// isUnavailable reports whether Redis is unavailable.
func isUnavailable(err error) bool { return errors.Is(err, state.ErrUnavailable) }

// prepare uploads the files to the hub and builds the graph.
func (j *job) prepare(ctx context.Context) error {
	command := j.r.o.Command(j.rec.Command)
	if command == nil {
		return j.entry.end(ctx, Refused, j.words.say("command_gone", nil))
	}
	if len(j.rec.Inputs) > 0 {
		if err := j.status.tell(ctx); err != nil {
			return err
		}
	}
	for i := range j.rec.Inputs {
		if j.rec.Cancel {
			return j.entry.end(ctx, Cancelled, "")
		}
		in := &j.rec.Inputs[i]
		if in.Stored == "" {
			name, err := j.bring(ctx, *in)
			if errors.Is(err, platform.ErrGone) || errors.Is(err, platform.ErrTooLarge) ||
				errors.Is(err, platform.ErrRefused) || errors.Is(err, hubapi.ErrNotFound) {
				return j.entry.end(ctx, Refused, j.words.say("input_gone", nil))
			}
			if err != nil {
				return err
			}
			in.Stored = name
			if err := j.entry.save(ctx); err != nil {
				return err
			}
		}
	}
	j.rec.Graph = command.Fill(j.rec.Args, j.rec.Files())
	j.rec.Phase = Ready
	return j.entry.save(ctx)
}

// bringTimeout bounds the upload of one input to the hub.
const bringTimeout = 5 * time.Minute

// bring streams an input to the hub.
func (j *job) bring(ctx context.Context, in Input) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, bringTimeout)
	defer cancel()
	name := string(in.Role) + ".png"
	if in.File != nil {
		if extension(in.File.Name) != "" {
			name = string(in.Role) + extension(in.File.Name)
		}
		body, err := j.platform.Open(ctx, *in.File)
		if err != nil {
			return "", fmt.Errorf("opening an input: %w", err)
		}
		defer body.Close()
		return j.r.o.Hub.Upload(ctx, j.rec.Tenant(), name, body)
	}
	name = string(in.Role) + extension(path.Base(in.From.Filename))
	body, _, err := j.r.o.Hub.View(ctx, in.Owner, *in.From)
	if err != nil {
		return "", err
	}
	defer body.Close()
	return j.r.o.Hub.Upload(ctx, j.rec.Tenant(), name, body)
}

// submit sends the graph to the hub. Its id was stored before, so this can be repeated.
func (j *job) submit(ctx context.Context) error {
	if j.rec.Cancel {
		// An earlier attempt may have got through.
		if err := j.r.o.Hub.Cancel(ctx, j.rec.Tenant(), j.rec.Prompt); err != nil {
			return err
		}
		return j.entry.end(ctx, Cancelled, "")
	}
	if barred(ctx, j.platform, j.rec.Chat, j.makes()) {
		return j.entry.end(ctx, Refused, j.words.say("barred", nil))
	}
	taken, err := j.r.o.Hub.Submit(ctx, hubapi.Submission{
		Tenant: j.rec.Tenant(), Client: j.rec.Client, Prompt: j.rec.Prompt, Graph: j.rec.Graph,
	})
	if refused, ok := errors.AsType[*hubapi.RefusedError](err); ok {
		return j.entry.end(ctx, Refused, j.words.whyRefused(refused))
	}
	if err != nil {
		return err
	}
	j.hubBack()
	j.prog.position = taken.Position
	j.expect(ctx, taken.ETA)
	j.rec.Phase = Queued
	if err := j.entry.save(ctx); err != nil {
		return err
	}
	return j.status.tell(ctx)
}

// barredTimeout bounds the question whether a picture may be shown.
const barredTimeout = 5 * time.Second

// barred reports whether nobody could see the result, as far as that can be known before the
// run.
func barred(ctx context.Context, on platform.Platform, in platform.Chat, media platform.Media) bool {
	p, ok := on.(platform.Permitted)
	if !ok || !in.Group {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, barredTimeout)
	defer cancel()
	err := p.MayShow(ctx, in, media)
	return errors.Is(err, platform.ErrNoMedia) || errors.Is(err, platform.ErrForbidden)
}

// hubAway tells the chat, once per outage, that the hub is unavailable and that
// requests are kept.
func (j *job) hubAway(ctx context.Context) {
	if j.away.since.IsZero() {
		j.away.since = time.Now()
	}
	if j.away.known || time.Since(j.away.since) < j.r.o.Patience {
		return
	}
	j.away.known = true
	j.away.tells = j.r.outage.tell(j.rec.Platform + "/" + j.rec.Chat.ID)
	switch {
	case j.rec.Status == "":
		if err := j.status.tell(ctx); err != nil {
			j.away.known = false
		}
	case j.away.tells:
		j.status.show()
	}
}

func (j *job) hubBack() {
	was := j.away.known
	j.away = absence{}
	if was {
		j.r.outage.over()
		j.status.show()
	}
}
