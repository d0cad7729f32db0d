package view

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/dispatch"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/panics"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/stats"
)

const (
	// boardEvery is the pause between two looks at the fleet while somebody is watching it, and
	// boardQueueEvery between two looks at the queue.
	boardEvery, boardQueueEvery = 500 * time.Millisecond, time.Second
	// queueShare bounds what looking at the queue costs: a look that took a while is followed by so many
	// times as much without one, up to queueRarely. Each tenant that watches is looked for on its own, and
	// each row that moves up has another place.
	queueShare, queueRarely = 20, 5 * time.Second
	// maxPages bounds how many may watch at one time.
	maxPages = 512
	// MaxPagesOfOne bounds how many with one login or, without a login, from one address.
	MaxPagesOfOne = 16
	// pageBacklog is how many changes may wait for a watcher before it is cut off.
	pageBacklog = 8
)

// Errors of [Board.Watch].
var (
	ErrTooManyPages    = errors.New("too many watch the fleet at this hub")
	ErrTooManyOwnPages = errors.New("you watch the fleet too often at once")
)

// Board is the fleet and the queue as they change, for those who watch. While nobody does, nothing
// is looked at. All who may see the same share one look and one list of changes.
type Board struct {
	insight  *Insight
	dispatch *dispatch.Dispatcher
	fleet    *fleet.Registry
	queue    *queue.Queue
	faults   *stats.Faults
	log      func() *slog.Logger

	// turn belongs to whoever looks, for a view or for all; it uses what the views have seen.
	turn *semaphore.Weighted

	mu     sync.Mutex
	closed bool
	views  map[sight]*boardView
	// pages counts the open pages by the user they count for.
	pages map[string]int
	open  int
	// stop ends the looking, nil while nobody is watching.
	stop context.CancelFunc
	work sync.WaitGroup
	jobs boardJobs
}

// sight is what a viewer may see. Viewers with the same sight see the same.
type sight struct {
	// tenant is whose jobs are shown; empty for an operator, who sees everybody's.
	tenant string
	// all says that addresses and reasons are shown.
	all, operator bool
}

// NewBoard shows what nobody is looking at yet.
func NewBoard(s *Insight, d *dispatch.Dispatcher, registry *fleet.Registry, q *queue.Queue, faults *stats.Faults, log func() *slog.Logger) *Board {
	return &Board{turn: semaphore.NewWeighted(1), insight: s, dispatch: d, fleet: registry, queue: q, faults: faults, log: log, views: map[sight]*boardView{}, pages: map[string]int{}}
}

func (b *Board) sightOf(v Viewer) sight {
	s := sight{tenant: v.Tenant, all: b.insight.SeesAll(v), operator: v.Operator}
	if s.operator {
		s.tenant = ""
	}
	return s
}

// sees reports whether a tenant's jobs are shown.
func (s sight) sees(tenant string) bool { return s.operator || s.tenant == tenant }

// Watcher is somebody who is watching.
type Watcher struct {
	// Changes are what has changed, in order; the first shows everything. The channel is closed if
	// the reader was too slow or the hub closes: watch again then.
	Changes <-chan *BoardChange
	// SeesAll and Operator say what the viewer may see and do.
	SeesAll, Operator bool

	changes chan *BoardChange
	stop    func()
}

// Stop ends the watch. It must be called.
func (w *Watcher) Stop() { w.stop() }

// Watch lets a viewer watch, counting toward share. The errors are [ErrTooManyPages],
// [ErrTooManyOwnPages], or one of Redis.
func (b *Board) Watch(ctx context.Context, v Viewer, share string) (*Watcher, error) {
	if err := b.turn.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer b.turn.Release(1)
	s := b.sightOf(v)
	view, err := b.view(s, share)
	if err != nil {
		return nil, err
	}
	if view == nil {
		view = newBoardView(s)
		if view.seen, err = view.look(ctx, b, b.now(), true); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, config.ErrNotStarted
	}
	b.views[s] = view // even if the last one who watched it has left meanwhile
	changes := make(chan *BoardChange, pageBacklog)
	changes <- view.everything()
	w := &Watcher{Changes: changes, changes: changes, SeesAll: s.all, Operator: s.operator}
	view.watchers[w] = true
	b.pages[share]++
	b.open++
	if b.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		b.stop = stop
		b.work.Go(func() { b.run(ctx) })
	}
	w.stop = sync.OnceFunc(func() { b.leave(w, s, share) })
	return w, nil
}

// view returns what those with a sight see, nil if nobody else watches it; or why one more may not.
func (b *Board) view(s sight, share string) (*boardView, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, config.ErrNotStarted
	case b.open >= maxPages:
		return nil, ErrTooManyPages
	case b.pages[share] >= MaxPagesOfOne:
		return nil, ErrTooManyOwnPages
	}
	return b.views[s], nil
}

// leave ends one watch, and the looking after the last one.
func (b *Board) leave(w *Watcher, s sight, share string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if view := b.views[s]; view != nil {
		delete(view.watchers, w)
		if len(view.watchers) == 0 {
			delete(b.views, s)
		}
	}
	if b.pages[share]--; b.pages[share] == 0 {
		delete(b.pages, share)
	}
	if b.open--; b.open == 0 && b.stop != nil {
		b.stop()
		b.stop = nil
	}
	b.rest()
}

// rest forgets the jobs while nobody is watching. The caller holds b.mu.
func (b *Board) rest() {
	if b.open == 0 {
		b.jobs.forget()
	}
}

// Touch makes the next look read a job again: its owner has just changed it.
func (b *Board) Touch(key string) {
	b.jobs.touch(key)
}

// Looks reports whether anything is being looked at.
func (b *Board) Looks() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open > 0 || b.stop != nil || len(b.views) > 0 || len(b.pages) > 0
}

// Close cuts off everybody who is watching.
func (b *Board) Close() {
	b.mu.Lock()
	b.closed = true
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
	for _, view := range b.views {
		for w := range view.watchers {
			view.cut(w)
		}
	}
	b.mu.Unlock()
	b.work.Wait()
}

// run looks again and again until ctx ends.
func (b *Board) run(ctx context.Context) {
	tick := time.NewTicker(boardEvery)
	defer tick.Stop()
	for last, pause := time.Now(), boardQueueEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		queued := began.Sub(last) >= pause
		_ = panics.Do(b.log(), "the dashboard", func() error { b.look(ctx, queued); return nil })
		if queued {
			last, pause = began, queuePause(time.Since(began))
		}
	}
}

// queuePause is how long after a look at the queue the next one is due, by how long it took.
func queuePause(took time.Duration) time.Duration {
	return min(max(boardQueueEvery, queueShare*took), queueRarely)
}

// look tells everybody who is watching what has changed.
func (b *Board) look(ctx context.Context, queued bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if b.turn.Acquire(ctx, 1) != nil {
		return
	}
	defer b.turn.Release(1)
	b.mu.Lock()
	views := slices.Collect(maps.Values(b.views))
	b.mu.Unlock()
	now := b.now()
	for _, view := range views {
		seen, err := view.look(ctx, b, now, queued)
		if err != nil {
			b.log().Debug("cannot read the queue for the dashboard", "error", err)
		}
		b.mu.Lock()
		view.show(seen)
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest()
}

// boardNow is what one look finds that is the same for all views.
type boardNow struct {
	instances  []fleet.Instance
	activities map[string]run.Activity
}

func (b *Board) now() *boardNow {
	return &boardNow{b.insight.Settings().WithReserved(b.fleet.Instances()), b.dispatch.Instances.Activities()}
}

// Preview returns the latest picture of the run at an instance, and its media type, if the viewer
// may see it and this hub follows the run.
func (b *Board) Preview(v Viewer, instance string) (picture []byte, kind string, ok bool) {
	s := b.sightOf(v)
	r := b.dispatch.Instances.Activity(instance)
	if r.Job.Key == "" || !s.sees(r.Job.Tenant) {
		return nil, "", false
	}
	p, ok := b.dispatch.Instances.Preview(instance, r.Job.Key)
	if !ok {
		return nil, "", false
	}
	if kind = mediaTypeOf(p); kind == "" {
		return nil, "", false
	}
	return p.Image, kind, true
}
