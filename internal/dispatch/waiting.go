package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/traces"
)

// Waiting knows why jobs wait, and ends those that have waited in vain.
type Waiting struct {
	queue     *queue.Queue
	settings  func() Settings
	check     func(ctx context.Context, j job.Job, body job.Body) *comfyui.Refused
	paused    func() error
	traces    func() *traces.Tracer
	access    *Access
	instances *Instances
	otherHubs *otherHubs
	judged    *judgements
	notices   *run.Notices
	log       *slog.Logger

	mu sync.Mutex
	// unrunnable says since when tenants find no present instance that can run a class, and
	// lacking, for those of which nobody finds one, why.
	unrunnable map[unrunnable]time.Time
	lacking    map[string]string
	// unfit is when waiting jobs of a class were last checked that were accepted unchecked.
	unfit map[string]time.Time
}

// unrunnable is a class for which all tenants, or some, find no instance. The wait starts over when
// the set of those who find one changes.
type unrunnable struct{ class, able string }

const (
	// maxExplained bounds the classes for which expire says anew why nobody can run them.
	maxExplained = 100
	// unfitEvery is how often jobs that were accepted unchecked are looked at.
	unfitEvery = 10 * time.Second
)

// expire ends jobs that have waited too long for an instance that could run
// them. It goes with the safety tick: nobody is in a hurry here.
func (w *Waiting) expire(ctx context.Context) {
	classes, err := w.queue.Classes(ctx)
	if err != nil {
		return
	}
	now := time.Now()
	stuck, lacking, unfit := map[unrunnable]time.Time{}, map[string]string{}, map[string]time.Time{}
	var fresh []string
	explained := 0
	for class, able := range w.unable(classes) {
		needs, err := catalog.DecodeRequirements(classes[class])
		if err != nil {
			continue
		}
		there := w.otherHubs.owners(needs)
		if there.all {
			continue
		}
		able.tenants = append(able.tenants, there.tenants...)
		u := unrunnable{class, able.name()}
		if len(able.tenants) == 0 {
			reason, known := w.lacking[class]
			if explained++; !known || explained <= maxExplained {
				reason = w.Explain(needs, job.DefaultTenant)
			}
			lacking[class] = reason
		}
		since, known := w.unrunnable[u]
		if !known {
			since, fresh = now, append(fresh, class)
		}
		stuck[u] = since
		if needs.Unchecked && w.check != nil {
			unfit[class] = w.unfit[class]
			if now.Sub(unfit[class]) >= unfitEvery {
				w.endUnfit(ctx, class)
				unfit[class] = now
			}
		}
		if now.Sub(since) >= w.settings().UnrunnableTimeout {
			w.giveUp(ctx, class, needs, able)
		}
	}
	w.mu.Lock()
	w.unrunnable, w.lacking, w.unfit = stuck, lacking, unfit
	w.mu.Unlock()
	w.say(ctx, fresh, lacking)
}

// say logs that jobs of classes wait which no present instance can run: one line, with
// one of them.
func (w *Waiting) say(ctx context.Context, fresh []string, lacking map[string]string) {
	for _, class := range fresh {
		reason, known := lacking[class]
		if !known {
			continue // some tenants find an instance
		}
		jobs, err := w.queue.Peek(ctx, []string{class}, 1)
		if err != nil || len(jobs) == 0 {
			continue
		}
		w.log.Warn("a job waits that no present instance can run", "job", jobs[0].Key, "prompt", jobs[0].ID, "reason", reason, "kinds", len(fresh))
		return
	}
}

// Lacks says why no present instance can run the jobs of a class, as far as it was looked for;
// empty if one can.
func (w *Waiting) Lacks(class string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lacking[class]
}

// endUnfit ends waiting jobs of a class that were accepted unchecked and turn out to be wrong.
func (w *Waiting) endUnfit(ctx context.Context, class string) {
	const most = 100
	jobs, err := w.queue.Peek(ctx, []string{class}, most)
	if err != nil {
		return
	}
	for _, j := range jobs {
		body, err := w.queue.Body(ctx, j.Key)
		if err != nil {
			continue // it is tried again
		}
		if refused := w.check(ctx, j, body); refused != nil {
			why := run.RefusalError(refused)
			w.endWaiting(ctx, j, body, why, why.Message)
		}
	}
}

// unable returns the classes for which not every tenant finds a connected instance, with the
// tenants that do.
func (w *Waiting) unable(classes map[string][]byte) map[string]owners {
	conns := w.instances.Open()
	infos := make([]*catalog.Info, 0, len(conns))
	reserved := map[*catalog.Info][]string{} // by description, for all instances that share it
	for _, conn := range conns {
		info, tenants := conn.Abilities(), w.access.reservedFor(conn.Name)
		switch {
		case tenants == nil:
			infos = append(infos, info)
		case info != nil:
			reserved[info] = append(reserved[info], tenants...)
		}
	}
	left := w.judged.none(infos, classes)
	able := make(map[string]owners, len(left))
	for class := range left {
		able[class] = owners{}
	}
	for info, tenants := range reserved {
		for class := range w.judged.can(info, left) {
			o := able[class]
			o.add(tenants)
			able[class] = o
		}
	}
	return able
}

// giveUp fails the waiting jobs of a class that were accepted long enough ago, except those of
// tenants that find an instance.
func (w *Waiting) giveUp(ctx context.Context, class string, needs catalog.Requirements, able owners) {
	const most, behindOthers = 100, 1000
	n := most
	if len(able.tenants) > 0 {
		n = behindOthers
	}
	jobs, err := w.queue.Peek(ctx, []string{class}, n)
	if err != nil {
		return
	}
	for _, j := range jobs {
		if able.has(j.Tenant) || w.notices.Age(j) < w.settings().UnrunnableTimeout {
			continue
		}
		reason := w.Explain(needs, j.Tenant)
		body, err := w.queue.Body(ctx, j.Key)
		if errors.Is(err, queue.ErrUnavailable) {
			return
		}
		// What cannot be read for good is no reason to let the job wait for ever.
		w.endWaiting(ctx, j, body, comfyui.Failure{
			Type:    "RuntimeError",
			Message: fmt.Sprintf("No instance could run this prompt within %s: %s", w.settings().UnrunnableTimeout, reason),
		}, reason)
	}
}

// endWaiting ends a job that nobody can run with an error.
func (w *Waiting) endWaiting(ctx context.Context, j job.Job, body job.Body, why comfyui.Failure, reason string) {
	outcome, last := run.Unrun(j, body, why, reason)
	if err := w.queue.FailWaiting(ctx, j.Key, outcome); err != nil {
		if !errors.Is(err, queue.ErrNotQueued) {
			w.log.Warn("cannot end a job that nobody can run", "job", j.Key, "error", err)
		}
		return
	}
	w.notices.Announce(j, last...)
	w.traces().Failed(traces.Start{Parent: body.Trace, Key: j.Key, Accepted: w.queue.Clock().When(j.CreatedAt), At: time.Now()})
}

// Explain says in plain words why a tenant's job is waiting.
func (w *Waiting) Explain(needs catalog.Requirements, tenant string) string {
	if w.paused() != nil { // the error says where the storage is
		return "the hub's storage takes no files now; jobs wait until it does"
	}
	conns, elsewhere := w.instances.Open(), w.otherHubs.AnotherHubHas(needs, tenant)
	if len(conns) == 0 && !elsewhere {
		return "no instance is connected"
	}
	var lacking []string
	for _, conn := range conns {
		info := conn.Abilities()
		if info == nil {
			continue
		}
		missing := info.Satisfies(needs)
		if len(missing) == 0 && w.access.mayUse(tenant, conn.Name) {
			return "waiting for an instance to become idle"
		}
		if len(missing) == 0 {
			lacking = append(lacking, conn.Name+" "+forOthers)
			continue
		}
		lacking = append(lacking, conn.Name+" lacks "+strings.Join(missing[:min(len(missing), 3)], ", "))
	}
	if elsewhere {
		return "waiting for an instance of another hub to become idle"
	}
	slices.Sort(lacking)
	return "no present instance can run it: " + strings.Join(lacking[:min(len(lacking), 5)], "; ")
}

// forOthers says why an instance does not run a job.
const forOthers = "is reserved for other tenants"
