// Package learned keeps what ended runs have taught about those to come.
package learned

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

const (
	// tendEvery is how often measured runs are stored.
	tendEvery = 2 * time.Second
	// refreshEvery is how often the measurements of other hubs are read.
	refreshEvery = 10 * time.Second
	// maxFresh bounds the runs that are not stored yet while Redis is away.
	maxFresh = 1000
)

// Durations knows how long jobs run, from the runs of all hubs.
type Durations struct {
	queue   *queue.Queue
	reports *instance.Reports
	log     *slog.Logger
	// Known is how long they take.
	Known schedule.Estimator
	// needs is how much GPU memory they take.
	needs schedule.Needs
	// Spending is where their time goes.
	Spending schedule.Spending

	mu sync.Mutex
	// fresh are runs that are not stored yet.
	fresh []queue.Measured
}

// New returns durations that know nothing yet. Tend shares them with the other hubs.
func New(q *queue.Queue, reports *instance.Reports, log *slog.Logger) *Durations {
	return &Durations{queue: q, reports: reports, log: log}
}

// Add learns from a run.
func (t *Durations) Add(p schedule.Pair, s schedule.Sample) {
	t.Known.Add(p, s)
	t.share(p.Field(), s.Encode())
}

// AddNeed learns how much GPU memory a run took.
func (t *Durations) AddNeed(p schedule.Pair, n schedule.Need) {
	t.needs.Add(p, n)
	t.share(schedule.NeedField(p), n.Encode())
}

// AddSpent learns where the time of a run went.
func (t *Durations) AddSpent(p schedule.Pair, s schedule.Spent) {
	text := s.Encode()
	if text == "" {
		return
	}
	t.Spending.Add(p, s)
	t.share(schedule.SpentField(p), text)
}

// share notes a run that is to be stored for all hubs.
func (t *Durations) share(pair, run string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.fresh) < maxFresh {
		t.fresh = append(t.fresh, queue.Measured{Pair: pair, Run: run})
	}
}

// take returns the runs to store.
func (t *Durations) take() []queue.Measured {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := t.fresh
	t.fresh = nil
	return fresh
}

// back takes back runs that could not be stored.
func (t *Durations) back(runs []queue.Measured) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fresh = append(runs, t.fresh...)
	t.fresh = t.fresh[max(0, len(t.fresh)-maxFresh):]
}

// Estimate returns how long a job of a shape will run on a GPU type.
func (t *Durations) Estimate(shape, gpu string) schedule.Estimate {
	s, _ := schedule.DecodeStructure(shape)
	return t.Known.Estimate(s, gpu)
}

// Cost returns what the tenant is charged when a job begins on an instance; 0 if nothing is
// known.
func (t *Durations) Cost(shape, instance string) time.Duration {
	e := t.Estimate(shape, t.reports.Gpu(instance))
	if e.Source == schedule.Guess {
		return 0
	}
	return e.Ran
}

// Tend shares measurements with the other hubs, until ctx ends.
func (t *Durations) Tend(ctx context.Context) {
	var since int64
	var read time.Time
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		if time.Since(read) >= refreshEvery {
			if now, err := t.refresh(ctx, since); err == nil {
				since, read = now, time.Now()
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.storeLast()
			return
		}
		t.store(ctx)
	}
}

func (t *Durations) store(ctx context.Context) {
	runs := t.take()
	if err := t.queue.KeepMeasured(ctx, runs); err != nil {
		t.back(runs)
		t.log.Debug("cannot store how long jobs ran", "error", err)
	}
}

// storeLast stores what is left when the hub stops.
func (t *Durations) storeLast() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	t.store(ctx)
}

// refresh reads what all hubs have measured since the given time.
func (t *Durations) refresh(ctx context.Context, since int64) (now int64, err error) {
	runs, now, err := t.queue.Durations(ctx, since)
	if err != nil {
		return since, err
	}
	for field, text := range runs {
		if p, ok := schedule.ParseNeedField(field); ok {
			t.needs.Set(p, schedule.DecodeNeeds(text))
		} else if p, ok := schedule.ParseSpentField(field); ok {
			t.Spending.Set(p, schedule.DecodeSpents(text))
		} else if p, ok := schedule.ParsePair(field); ok {
			t.Known.Set(p, schedule.DecodeSamples(text))
		}
	}
	return now, nil
}

// Need returns how many bytes of GPU memory a job of a shape takes, 0 if unknown.
func (t *Durations) Need(shape, gpu string) int64 {
	s, ok := schedule.DecodeStructure(shape)
	if !ok {
		return 0
	}
	return t.needs.Of(s, gpu)
}
