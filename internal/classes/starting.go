package classes

import (
	"context"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

const (
	// startTime is how long a request waits for the first instance to say what it can run, and
	// how long after its start a hub expects to hear of the instances that it was told of.
	startTime = 5 * time.Second
	// lookEvery is how often such a request looks again.
	lookEvery = 50 * time.Millisecond
	// maxStarting bounds the requests that wait so.
	maxStarting = 500
	// MaxStartingOne bounds those of one share.
	MaxStartingOne = 100
	// joinTime is how long after the first instance others may come that a prompt was posted
	// for, before there was any.
	joinTime = 10 * time.Second
)

// beginning is the time in which instances are there, or on their way, and it is not known yet
// what they can run. What is asked then waits for the answer: an empty one would be wrong, and
// a prompt would go unchecked. A hub that no instance is on its way to is not in it: prompts
// may be queued for a fleet that is yet to be switched on.
type beginning struct {
	fleet    *fleet.Registry
	dispatch *dispatch.Dispatcher
	settings func() *config.Settings
	// since is when the hub began to serve.
	since   func() time.Time
	looked  <-chan struct{}
	waiting waiters
}

// waiters counts who waits, by share. It is safe for concurrent use.
type waiters struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// enter reports whether one more may wait.
func (w *waiters) enter(share string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all >= maxStarting || w.of[share] >= MaxStartingOne {
		return false
	}
	w.all++
	w.of[share]++
	return true
}

func (w *waiters) leave(share string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.of[share]--; w.of[share] == 0 {
		delete(w.of, share)
	}
}

// HasLooked reports whether it is known what other instances could run.
func (b *beginning) HasLooked() bool {
	select {
	case <-b.looked:
		return true
	default:
		return false
	}
}

// expects reports whether an instance of a kind, or of any if it is empty, is there or may
// be about to come.
func (b *beginning) expects(kind string) bool {
	young := time.Since(b.since()) < startTime
	if young && !b.HasLooked() {
		return true
	}
	all, s := b.fleet.Instances(), b.settings()
	if len(all) == 0 { // it may have begun to serve a moment ago
		return young && len(s.Instances)+len(s.A1111) > 0
	}
	for _, i := range all {
		there := i.State != fleet.Offline && i.State != fleet.Sick || young && i.LastSeen.IsZero()
		if there && (kind == "" || i.Kind == kind) {
			return true
		}
	}
	return false
}

// await waits until what is wanted is there, or is not on its way, counting toward share. The
// error is [catalog.ErrUnknown], or that of the context.
func (b *beginning) await(ctx context.Context, share, kind string, there func() bool) error {
	if there() || !b.expects(kind) {
		return nil
	}
	if !b.waiting.enter(share) {
		return catalog.ErrUnknown
	}
	defer b.waiting.leave(share)
	deadline, tick := time.NewTimer(startTime), time.NewTicker(lookEvery)
	defer deadline.Stop()
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if there() || !b.expects(kind) {
				return nil
			}
		case <-deadline.C:
			return catalog.ErrUnknown
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// allTold reports whether each instance that is there has said what it can run.
func (b *beginning) allTold() bool {
	told := b.dispatch.Instances.Names()
	for _, i := range b.fleet.Instances() {
		if i.State != fleet.Offline && !told[i.Name] {
			return false
		}
	}
	return b.HasLooked()
}

// Await waits until it is known what some instance can run, if one is there or on its way. Of
// one share only so many may wait. The error is [catalog.ErrUnknown] after a few seconds, or
// that of the context.
func (c *Classes) Await(ctx context.Context, share string) error {
	return c.Beginning.await(ctx, share, "", func() bool { return !c.Inventory.Catalog().Empty() })
}

// AwaitServer is Await for a ComfyUI that can be asked.
func (c *Classes) AwaitServer(ctx context.Context, share string) error {
	return c.Beginning.await(ctx, share, fleet.KindComfyUI, func() bool { return c.dispatch.Instances.First() != nil })
}

// Unfit says why nobody will ever run a waiting job that was accepted while no node class was
// known; nil if somebody might.
func (c *Classes) Unfit(ctx context.Context, j job.Job, body job.Body) *comfyui.Refused {
	known := c.Inventory.Catalog()
	if known.Empty() || time.Since(c.Inventory.knownSince()) < joinTime || !c.Beginning.allTold() {
		return nil
	}
	graph, err := catalog.ParseGraph(body.Prompt)
	if err != nil {
		return nil
	}
	have := &Lookup{Store: c.store, Ctx: ctx, Tenant: j.Tenant}
	verdict := known.Validate(catalog.Prompt{
		Graph: graph, Targets: body.Targets, Version: c.version(), Known: have.Has, OwnFiles: j.Tenant != job.DefaultTenant,
	})
	if have.Err != nil || verdict.Accepted() || verdict.Error == nil {
		return nil
	}
	return &comfyui.Refused{
		Status: verdict.Answer.Status, Body: verdict.Answer.Body, Type: verdict.Error.String("type"), Message: verdict.Error.String("message"),
		Details: verdict.Error.String("details"), NodeErrors: pyjson.Marshal(verdict.NodeErrors),
	}
}
