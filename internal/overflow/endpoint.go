package overflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/panics"
)

const (
	// healthEvery is how often an endpoint is asked how it is, and purseEvery how often it is looked
	// what it has cost.
	healthEvery, purseEvery = 30 * time.Second, 5 * time.Second
	// restFor is how long an endpoint that takes no runs gets none.
	restFor = 30 * time.Second
	// waits is how many times its run time a run may live, with its wait.
	waits = 2
	// graceFor is how long a run is looked after that has outlived its time.
	graceFor = 2 * time.Minute
	// firstPoll and mostPoll are the pauses between two questions about a run.
	firstPoll, mostPoll = time.Second, 5 * time.Second
	// shownEvery is how often a client is told that a run goes on.
	shownEvery = 15 * time.Second
)

// DefaultTimeout bounds a run, unless its endpoint says otherwise.
const DefaultTimeout = 10 * time.Minute

// Options describe an endpoint.
type Options struct {
	// Name tells it from others.
	Name   string
	Remote Remote
	// Price is what a second costs, and Budget what all runs may cost a day by UTC, in the operator's
	// money; 0 for unknown, and for no limit.
	Price, Budget float64
	// Timeout bounds a run once it has begun. Default: DefaultTimeout.
	Timeout time.Duration
	// Inputs and Secrets say that input files, and API keys of prompts, may go there.
	Inputs, Secrets bool
	// ObjectInfo describes its node classes as GET /object_info does; empty if that is not known.
	ObjectInfo []byte
	// IsOutput reports whether nodes of a class are output nodes.
	IsOutput func(class string) bool
	// FilesFrom are the hosts from which files of runs are fetched that are links.
	FilesFrom egress.Hosts
	Egress    egress.Options
	// Tenant returns whose a job is.
	Tenant func(ctx context.Context, job string) (string, error)
	Book   *Book
	Log    *slog.Logger
	// Version is the version of ComfyUI that hubs should take it for.
	Version string
}

// Endpoint is a serverless endpoint. It is safe for concurrent use.
type Endpoint struct {
	o     Options
	fetch *egress.Client

	mu sync.Mutex
	// sick is why it cannot be used, empty if it can, and rests until when it gets no runs because of
	// unwell.
	sick, unwell string
	rests        time.Time
	purse        money
	running      int
}

// New returns an endpoint; Run watches it.
func New(o Options) *Endpoint {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	return &Endpoint{o: o, fetch: egress.NewClient(o.FilesFrom, o.Egress)}
}

// lifetime bounds a run with its wait.
func (e *Endpoint) lifetime() time.Duration { return waits * e.o.Timeout }

// worst is what a run can cost, in millionths.
func (e *Endpoint) worst() int64 { return inMicros(e.o.Price * e.lifetime().Seconds()) }

func inMicros(amount float64) int64 { return int64(math.Ceil(min(amount, maxCost) * micros)) }

// limit is what a day may cost, as the store wants it.
func (e *Endpoint) limit() string {
	if e.o.Budget <= 0 {
		return ""
	}
	return strconv.FormatInt(inMicros(e.o.Budget), 10)
}

// Run watches the endpoint until ctx ends.
func (e *Endpoint) Run(ctx context.Context) {
	tick := time.NewTicker(purseEvery)
	defer tick.Stop()
	var checked time.Time
	for {
		_ = panics.Do(e.o.Log, "watching an endpoint", func() error {
			if checked.IsZero() || time.Since(checked) >= healthEvery {
				checked = time.Now()
				e.check(ctx)
			}
			e.count(ctx)
			return nil
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// check asks how the endpoint is.
func (e *Endpoint) check(ctx context.Context) {
	err := e.o.Remote.Health(ctx)
	if ctx.Err() != nil {
		return
	}
	sick := ""
	if err != nil {
		sick = clip(err.Error())
	}
	e.mu.Lock()
	news := e.sick != sick
	e.sick = sick
	e.mu.Unlock()
	if news && sick != "" {
		e.o.Log.Warn("an endpoint cannot be used", "endpoint", e.o.Name, "reason", sick)
	}
}

// count looks what the endpoint has cost.
func (e *Endpoint) count(ctx context.Context) {
	purse, err := e.o.Book.store.purse(ctx, e.o.Name)
	if err != nil {
		return // what was seen last is good
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.purse = purse
}

// rest keeps runs from the endpoint for a while.
func (e *Endpoint) rest(reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rests, e.unwell = time.Now().Add(restFor), reason
}

// busy counts a run that begins or ends here.
func (e *Endpoint) busy(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running += n
}

// Closed says why the endpoint takes no runs now; empty if it does.
func (e *Endpoint) Closed() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.sick != "":
		return e.sick
	case time.Now().Before(e.rests):
		return e.unwell
	case e.o.Budget > 0 && e.purse.spent+e.purse.aside >= e.o.Budget:
		return "its budget of the day is spent"
	}
	return ""
}

// Status is how an endpoint is doing.
type Status struct {
	Endpoint string
	// Running is how many runs this hub has there.
	Running int
	// Spent is what today's runs have cost, and Aside what is set aside for those that go on. Budget is
	// what a day may cost, 0 for no limit.
	Spent, Aside, Price, Budget float64
	// Closed says why it takes no runs now; empty if it does.
	Closed string
}

// Status returns how the endpoint is doing. The error is one of Redis.
func (e *Endpoint) Status(ctx context.Context) (Status, error) {
	purse, err := e.o.Book.store.purse(ctx, e.o.Name)
	if err != nil {
		return Status{}, err
	}
	closed := e.Closed()
	e.mu.Lock()
	defer e.mu.Unlock()
	return Status{
		Endpoint: e.o.Name, Running: e.running, Spent: purse.spent, Aside: purse.aside, Price: e.o.Price, Budget: e.o.Budget, Closed: closed,
	}, nil
}

// cost is what a run has cost, in millionths.
func (e *Endpoint) cost(a Answer, rec record) int64 {
	if a.Cost >= 0 {
		return inMicros(a.Cost)
	}
	took := a.Took
	if took == 0 {
		took = time.Duration(e.o.Book.store.now()-rec.At) * time.Millisecond
	}
	return min(inMicros(e.o.Price*took.Seconds()), rec.Aside)
}

// Fate is what has become of a job that has a run at an endpoint.
type Fate int

const (
	// Wanted says that it may still be run there.
	Wanted Fate = iota
	// Elsewhere says that a server runs it.
	Elsewhere
	// Ended says that nobody runs it any more.
	Ended
)

// Sweep ends runs that nobody wants any more. A job that runs elsewhere goes to no endpoint again:
// its run may have cost something. The error is one of Redis.
func (e *Endpoint) Sweep(ctx context.Context, fate func(job string) Fate) error {
	for job, rec := range e.o.Book.snapshot() {
		if rec.Endpoint != e.o.Name {
			continue
		}
		f := fate(job)
		if f == Wanted || f == Elsewhere && rec.Phase == over {
			continue
		}
		c := change{job: job, from: rec}
		if f == Elsewhere {
			barred := rec
			barred.Phase, barred.Aside = over, 0
			c.to = &barred
		}
		switch rec.Phase {
		case asked:
			c.cost = rec.Aside // nobody knows
		case begun:
			a, err := e.end(ctx, rec)
			if err != nil && !errors.Is(err, ErrNoRun) {
				e.o.Log.Warn("cannot end a run at an endpoint", "endpoint", e.o.Name, "job", job, "reason", clip(err.Error()))
				if !e.outlived(rec) {
					continue
				}
			}
			if c.cost = rec.Aside; err == nil {
				c.cost = e.cost(a, rec)
			}
		case settled, over:
		}
		if _, err := e.o.Book.move(ctx, c); err != nil && !errors.Is(err, errChanged) {
			return fmt.Errorf("overflow: %w", err)
		}
	}
	return nil
}

// outlived reports whether a run cannot go on any more.
func (e *Endpoint) outlived(rec record) bool {
	return e.o.Book.store.now()-rec.At > (e.lifetime() + graceFor).Milliseconds()
}

// end ends a run, and returns its end.
func (e *Endpoint) end(ctx context.Context, rec record) (Answer, error) {
	if err := e.o.Remote.Cancel(ctx, rec.Remote); err != nil {
		return Answer{}, err
	}
	return e.o.Remote.Status(ctx, rec.Remote)
}
