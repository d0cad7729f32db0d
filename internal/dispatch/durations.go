package dispatch

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

const (
	// tendEvery is how often measured runs are stored and the line is read again.
	tendEvery = 2 * time.Second
	// refreshEvery is how often the measurements of other hubs are read.
	refreshEvery = 10 * time.Second
	// maxFresh bounds the runs that are not stored yet while Redis is away.
	maxFresh = 1000
)

// durations knows how long jobs run, from the runs of all hubs. The zero value knows nothing.
type durations struct {
	queue   *queue.Queue
	reports *instance.Reports
	log     *slog.Logger
	known   schedule.Estimator
	// needs is how much GPU memory they take.
	needs schedule.Needs
	// spending is where their time goes.
	spending schedule.Spending

	mu sync.Mutex
	// fresh are runs that are not stored yet.
	fresh []queue.Measured
}

// add learns from a run.
func (t *durations) add(p schedule.Pair, s schedule.Sample) {
	t.known.Add(p, s)
	t.share(p.Field(), s.Encode())
}

// addNeed learns how much GPU memory a run took.
func (t *durations) addNeed(p schedule.Pair, n schedule.Need) {
	t.needs.Add(p, n)
	t.share(schedule.NeedField(p), n.Encode())
}

// addSpent learns where the time of a run went.
func (t *durations) addSpent(p schedule.Pair, s schedule.Spent) {
	text := s.Encode()
	if text == "" {
		return
	}
	t.spending.Add(p, s)
	t.share(schedule.SpentField(p), text)
}

// share notes a run that is to be stored for all hubs.
func (t *durations) share(pair, run string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.fresh) < maxFresh {
		t.fresh = append(t.fresh, queue.Measured{Pair: pair, Run: run})
	}
}

// take returns the runs to store.
func (t *durations) take() []queue.Measured {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := t.fresh
	t.fresh = nil
	return fresh
}

// back takes back runs that could not be stored.
func (t *durations) back(runs []queue.Measured) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fresh = append(runs, t.fresh...)
	t.fresh = t.fresh[max(0, len(t.fresh)-maxFresh):]
}

// Shape returns the text under which the run time of a graph is stored.
func Shape(graph pyjson.Value) string {
	s, ok := schedule.Parsed(graph)
	if !ok {
		return ""
	}
	return s.Encode()
}

// estimate returns how long a job of a shape will run on a GPU type.
func (t *durations) estimate(shape, gpu string) schedule.Estimate {
	s, _ := schedule.DecodeStructure(shape)
	return t.known.Estimate(s, gpu)
}

// cost returns what the tenant is charged when a job begins on an instance; 0 if nothing is
// known.
func (t *durations) cost(shape, instance string) time.Duration {
	e := t.estimate(shape, t.reports.Gpu(instance))
	if e.Source == schedule.Guess {
		return 0
	}
	return e.Ran
}

// tend shares measurements with the other hubs, until ctx ends.
func (t *durations) tend(ctx context.Context) {
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

func (t *durations) store(ctx context.Context) {
	runs := t.take()
	if err := t.queue.KeepMeasured(ctx, runs); err != nil {
		t.back(runs)
		t.log.Debug("cannot store how long jobs ran", "error", err)
	}
}

// storeLast stores what is left when the hub stops.
func (t *durations) storeLast() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	t.store(ctx)
}

// refresh reads what all hubs have measured since the given time.
func (t *durations) refresh(ctx context.Context, since int64) (now int64, err error) {
	runs, now, err := t.queue.Durations(ctx, since)
	if err != nil {
		return since, err
	}
	for field, text := range runs {
		if p, ok := schedule.ParseNeedField(field); ok {
			t.needs.Set(p, schedule.DecodeNeeds(text))
		} else if p, ok := schedule.ParseSpentField(field); ok {
			t.spending.Set(p, schedule.DecodeSpents(text))
		} else if p, ok := schedule.ParsePair(field); ok {
			t.known.Set(p, schedule.DecodeSamples(text))
		}
	}
	return now, nil
}

// measured learns from a run that ended well.
func (r collecting) measured() {
	s, ok := schedule.DecodeStructure(r.Job().Shape)
	if !ok || r.startedAt.IsZero() || r.endedAt.IsZero() || r.missed.messages || r.allCached() {
		return
	}
	p := schedule.Pair{Structure: s.Key, Kind: s.Kind, GPU: r.d.reports.Gpu(r.conn.Name)}
	r.d.durations.add(p, schedule.Sample{Work: s.Work, Ran: r.endedAt.Sub(r.startedAt), Cold: r.cold})
	if r.division == nil && r.endedAt.Sub(r.startedAt) >= worthSplitting {
		r.d.durations.addSpent(p, r.timing.byClass(r.body.Prompt))
	}
	if peak := r.peak.Load(); peak > 0 {
		r.d.durations.addNeed(p, schedule.Need{Work: s.Work, Bytes: peak})
	}
}

// allCached reports whether the instance already had the results of all nodes except outputs, so
// that the run says nothing about how long the graph takes.
func (r collecting) allCached() bool {
	if len(r.cached) == 0 {
		return false
	}
	v, err := pyjson.Parse(r.body.Prompt)
	graph, ok := v.(*pyjson.Object)
	if err != nil || !ok {
		return false
	}
	for id := range graph.All() {
		if !slices.Contains(r.cached, id) && !slices.Contains(r.body.Outputs, id) {
			return false
		}
	}
	return true
}

// need returns how many bytes of GPU memory a job of a shape takes, 0 if unknown.
func (t *durations) need(shape, gpu string) int64 {
	s, ok := schedule.DecodeStructure(shape)
	if !ok {
		return 0
	}
	return t.needs.Of(s, gpu)
}
