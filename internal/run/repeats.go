package run

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/resultcache"
)

// Repeats gives prompts the results of equal ones that have ended. That is a gift, never a duty:
// whatever is in doubt, the prompt runs.
type Repeats struct {
	runner *Runner
	hub    string
	// left is told that a job is waiting no longer.
	left func(key string)
}

// NewRepeats returns what gives jobs their results as the named hub.
func NewRepeats(runner *Runner, hub string, left func(key string)) *Repeats {
	return &Repeats{runner: runner, hub: hub, left: left}
}

const (
	// stampPatience bounds asking an instance for its models before a result is given: the client
	// is waiting.
	stampPatience = time.Second
	// keepPatience bounds asking it after a run.
	keepPatience = 10 * time.Second
	// whyRepeated is why a job has no instance.
	whyRepeated = "it has the result of an equal prompt"
)

// Repeat is a result that a prompt can have at once.
type Repeat struct {
	from job.Job
	// outputs are raw JSON, with the names of files; nodes are those of the prompt.
	outputs []byte
	files   []job.FileRef
	nodes   []string
}

// Find returns the result that a prompt of a tenant would have, if it is no older than age; nil if
// the prompt must run.
func (rp *Repeats) Find(ctx context.Context, tenant string, s resultcache.Subject, age time.Duration) *Repeat {
	from, stamp, err := rp.runner.Queue.ResultOf(ctx, tenant, s.Key)
	if err != nil || rp.runner.Queue.Clock().Now().Sub(time.UnixMilli(from.FinishedAt)) > age {
		return nil
	}
	conn := rp.runner.Links.Get(from.Run.Instance)
	if conn == nil || !conn.IsReached() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stampPatience)
	defer cancel()
	if now, err := stampAt(ctx, conn, s); err != nil || now != stamp {
		return nil
	}
	entry, err := rp.runner.Queue.EntryOf(ctx, from)
	if err != nil {
		return nil
	}
	raw, err := entry.JSON()
	if err != nil {
		return nil
	}
	parts, ok := comfyui.ParseEntry(raw)
	if !ok || parts.End != comfyui.TypeExecutionSuccess {
		return nil
	}
	found := &Repeat{from: from, outputs: parts.Outputs, nodes: s.Nodes}
	for _, f := range comfyui.Files(parts.Outputs) {
		if !rp.runner.Files.Has(ctx, tenant, f.Ref) {
			return nil
		}
		found.files = append(found.files, f.Ref)
	}
	return found
}

// stampAt identifies the models of a prompt at an instance, and what else of the instance its result
// depends on. The error says that nobody knows.
func stampAt(ctx context.Context, conn *instance.Link, s resultcache.Subject) (string, error) {
	info := conn.Abilities()
	if info == nil || conn.Kind != fleet.KindComfyUI {
		return "", resultcache.ErrUnknown
	}
	for _, class := range s.Classes {
		if !info.Core(class) {
			return "", resultcache.ErrUnknown
		}
	}
	stamp, err := s.Stamp(ctx, func(ctx context.Context, path string) ([]byte, error) { return conn.Client.Get(ctx, path, nil) })
	return conn.Capability().String() + "\n" + stamp, err
}

// Give ends a job that has just been queued with a result. If that fails, it runs like any other.
func (rp *Repeats) Give(ctx context.Context, j job.Job, found *Repeat) {
	r := rp.runner.New(nil, j)
	request := queue.ClaimRequest{Key: j.Key, Tenant: j.Tenant, Hub: rp.hub, Upstream: uuid.NewString(), Cost: time.Millisecond, Why: whyRepeated}
	claimed, err := rp.runner.Queue.Claim(ctx, request)
	switch {
	case err == nil:
		rp.begin(r, claimed, found)
	case errors.Is(err, queue.ErrUnavailable):
		rp.runner.ClaimAgain(r, request, func(claimed job.Job) { rp.begin(r, claimed, found) })
	default:
		rp.runner.Logger.Debug("an equal prompt's result is not given", "job", j.Key, "error", err)
	}
}

func (rp *Repeats) begin(r *Run, claimed job.Job, found *Repeat) {
	r.take(claimed)
	rp.left(claimed.Key)
	rp.runner.Logger.Info("job has the result of an equal one", "job", claimed.Key, "prompt", claimed.ID, "equal", found.from.Key)
	rp.runner.launch(r, func(ctx context.Context) result { return repeating{r}.execute(ctx, found) })
}

// keep notes the result of a run that has ended well, for equal prompts.
func (r finishing) keep() {
	s, ok := resultcache.Decode(r.body.Subject)
	if !ok || !s.Kept || r.conn == nil || r.division != nil { // other instances' models have part in the result of a batch
		return
	}
	key, conn := r.Job().Key, r.conn
	r.d.Work.Go(r.log, "keeping a result for equal prompts", func() {
		ctx, cancel := context.WithTimeout(r.d.Ctx, keepPatience)
		defer cancel()
		stamp, err := stampAt(ctx, conn, s)
		if err == nil {
			err = r.d.Queue.KeepResult(ctx, key, s.Key, stamp)
		}
		if err != nil {
			r.log.Debug("the result cannot be given to equal prompts", "error", err)
		}
	})
}
