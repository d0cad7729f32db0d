package request

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// Options configure a Runner; all but Links, Judge, Observe and Logger are required.
type Options struct {
	Store  *state.Store
	Hub    *hubapi.Client
	Outbox *outbox.Outbox
	Texts  *locale.Bundle
	// Platform and Command look up by name; they return nil if there is none.
	Platform func(name string) platform.Platform
	Command  func(name string) *workflow.Command
	// Upscale is the command behind the button of that name, "" for none.
	Upscale string
	// Vary is the command behind the buttons V1 to V4, "" for the request's own.
	Vary string
	// InPlace turns the status message into a single picture instead of sending the
	// picture as a new message.
	InPlace bool
	// Links is the URL under which users reach the hub's links to files, without a
	// trailing slash; "" for none.
	Links string
	// Judge judges files before they are shown; nil for no moderation. It does not see
	// previews of runs, so those are not shown with it.
	Judge Judge
	// Observe is called for each finished request with its command and how it ended.
	Observe func(command string, outcome Outcome)
	// Instances returns how many instances can work, for the expected time.
	Instances func() int
	Logger    *slog.Logger
	// Patience is how long the hub must be unavailable before the user is told.
	// Default: 5 s.
	Patience time.Duration
	// Look is the shortest pause between two polls for one request. Default: 2 s.
	Look time.Duration
}

// Runner drives all requests, each in a goroutine of its own.
type Runner struct {
	o      Options
	outage outage

	mu   sync.Mutex
	jobs map[string]*job
	// moves are the new ids of chats, by platform and old id.
	moves map[string]string
	wg    sync.WaitGroup

	sheets chan struct{} // holds one while a sheet is made

	paces *paces
	fault atomic.Pointer[Fault]
}

// NewRunner makes a Runner.
func NewRunner(o Options) *Runner {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Observe == nil {
		o.Observe = func(string, Outcome) {}
	}
	if o.Instances == nil {
		o.Instances = func() int { return 1 }
	}
	o.Patience = cmp.Or(o.Patience, 5*time.Second)
	o.Look = cmp.Or(o.Look, 2*time.Second)
	return &Runner{o: o, jobs: map[string]*job{}, moves: map[string]string{}, sheets: make(chan struct{}, 1), paces: &paces{store: o.Store, command: o.Command, logger: o.Logger, byCommand: map[string]pace{}, turn: semaphore.NewWeighted(1)}}
}

// Resume continues every unfinished request. When ctx ends, they stop being driven
// and stay as they are.
func (r *Runner) Resume(ctx context.Context) error {
	ids, err := r.o.Store.Requests.Active(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := r.Continue(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// Continue drives a stored request unless it is already driven, over or forgotten. The
// channel is like Begin's.
func (r *Runner) Continue(ctx context.Context, id string) (<-chan struct{}, error) {
	if told := r.driven(id); told != nil {
		return told, nil
	}
	rec, version, err := r.load(ctx, id)
	if errors.Is(err, state.ErrNotFound) || err == nil && rec.Phase == Over {
		told := make(chan struct{})
		close(told)
		return told, nil
	}
	if err != nil {
		return nil, err
	}
	rec.doubt(r.o.Platform(rec.Platform))
	return r.start(ctx, rec, version), nil
}

func (r *Runner) driven(id string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j := r.jobs[id]; j != nil {
		return j.status.told
	}
	return nil
}

// Begin drives a request that was just stored. The channel is closed once the user has been
// told for the first time, or cannot be told.
func (r *Runner) Begin(ctx context.Context, rec Record) <-chan struct{} { return r.start(ctx, rec, 1) }

func (r *Runner) start(ctx context.Context, rec Record, version int64) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if running := r.jobs[rec.ID]; running != nil {
		return running.status.told
	}
	nodes := 0
	if c := r.o.Command(rec.Command); c != nil {
		nodes = c.Nodes()
	}
	j := newJob(r, rec, version, r.o.Platform(rec.Platform), nodes)
	r.jobs[rec.ID] = j
	r.wg.Go(func() {
		defer func() {
			r.mu.Lock()
			delete(r.jobs, rec.ID)
			r.mu.Unlock()
			j.status.tellOnce.Do(func() { close(j.status.told) })
		}()
		j.drive(ctx)
	})
	return j.status.told
}

// Wait waits until no request is driven any more.
func (r *Runner) Wait() { r.wg.Wait() }

// Active returns the number of driven requests.
func (r *Runner) Active() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.jobs)
}

// Cancel cancels a request. It returns false if the request is not driven, so it is over.
func (r *Runner) Cancel(id string) bool {
	r.mu.Lock()
	j := r.jobs[id]
	r.mu.Unlock()
	if j == nil {
		return false
	}
	select {
	case j.cancels <- struct{}{}:
	default:
	}
	return true
}

// Words returns the current text of a request's status message; false for a request
// that is not driven.
func (r *Runner) Words(id string) (string, bool) {
	r.mu.Lock()
	j := r.jobs[id]
	r.mu.Unlock()
	if j == nil {
		return "", false
	}
	j.status.mu.Lock()
	defer j.status.mu.Unlock()
	return j.status.shown, j.status.shown != ""
}

// Load reads a request, driven or over.
func (r *Runner) Load(ctx context.Context, id string) (Record, error) {
	rec, _, err := r.load(ctx, id)
	return rec, err
}

// pause returns how long a request waits between two polls. With many requests each
// polls less often, so that the total stays the same.
func (r *Runner) pause(started bool) time.Duration {
	pause := r.o.Look
	if started {
		// Its event stream says more, and sooner.
		pause *= 5
	}
	return pause + time.Duration(r.Active())*10*time.Millisecond
}
