package metrics

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/refusal"
	"github.com/comfyhub/comfyhub/internal/run"
	"github.com/comfyhub/comfyhub/internal/stats"
)

// recordEvery is how often a hub looks at its instances and adds to what all hubs have recorded.
const recordEvery = 10 * time.Second

// Recorder keeps how the fleet is doing, for the dashboard: numbers of the last day, and what has
// gone wrong. It observes the dispatcher, for the metrics as well.
type Recorder struct {
	*Metrics

	Trends *stats.Trends
	Faults *stats.Faults
	Fleet  *fleet.Registry
	Log    func() *slog.Logger
}

// Dispatched implements run.Observer.
func (r *Recorder) Dispatched(instance string, waited, gap time.Duration) {
	r.Metrics.Dispatched(instance, waited, gap)
	r.Trends.Waited(waited)
}

// Finished implements run.Observer.
func (r *Recorder) Finished(e run.End) {
	r.Metrics.Finished(e)
	r.Trends.Ended(e.Outcome)
}

// Switched implements run.Observer.
func (r *Recorder) Switched(instance string, saved bool) {
	r.Metrics.Switched(instance, saved)
	r.Trends.Switched(saved)
}

// Faulted notes a run that was lost, or a job that has failed.
func (r *Recorder) Faulted(j job.Job, instance, reason string, lost bool) {
	kind := stats.Failed
	if lost {
		kind = stats.Lost
	}
	r.Faults.Note(stats.Fault{Kind: kind, Tenant: j.Tenant, Job: j.ID, Instance: instance, Reason: reason})
}

// Refused notes a prompt that was not accepted.
func (r *Recorder) Refused(from job.Requester, err error) {
	if reason := RefusalText(err); reason != "" {
		r.Faults.Note(stats.Fault{Kind: stats.Refused, Tenant: from.Tenant, Reason: reason})
	}
}

// RefusalText says in a line why a prompt was not accepted; empty if the hub was at fault, not the
// prompt.
func RefusalText(err error) string {
	var answer *catalog.Answer
	var refused *refusal.Refusal
	switch {
	case errors.As(err, &answer):
		return errorText(answer.Body)
	case errors.As(err, &refused):
		return refused.Noted
	}
	return ""
}

// errorText returns what an error of ComfyUI says, with the first thing that a node says.
func errorText(body []byte) string {
	v, err := pyjson.Parse(body)
	answer, ok := v.(*pyjson.Object)
	if err != nil || !ok {
		return "the prompt is not valid"
	}
	failure := answer.Object("error")
	text, details := failure.String("message"), failure.String("details")
	for _, node := range answer.Object("node_errors").All() {
		o, _ := node.(*pyjson.Object)
		for _, e := range o.Array("errors") {
			if first, ok := e.(*pyjson.Object); ok {
				return o.String("class_type") + ": " + first.String("message") + ": " + first.String("details")
			}
		}
	}
	if details != "" {
		text += ": " + details
	}
	return text
}

// Run records until ctx ends, and once more after that.
func (r *Recorder) Run(ctx context.Context) {
	tick := time.NewTicker(recordEvery)
	defer tick.Stop()
	states, last := map[string]fleet.State{}, time.Now()
	for done := false; !done; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			done = true
		}
		now := time.Now()
		states = r.look(states, min(now.Sub(last), 2*recordEvery))
		last = now
		r.Flush()
	}
}

// look notes what the instances are doing, and which of them have become sick or gone since the
// last look.
func (r *Recorder) look(before map[string]fleet.State, passed time.Duration) map[string]fleet.State {
	var busy, up time.Duration
	now := map[string]fleet.State{}
	for _, i := range r.Fleet.Instances() {
		now[i.Name] = i.State
		was, known := before[i.Name]
		switch i.State {
		case fleet.Busy:
			busy += passed
			up += passed
		case fleet.Idle, fleet.Foreign:
			up += passed
		case fleet.Draining:
		case fleet.Sick, fleet.Offline:
			if known && was != i.State && !i.Left && !i.Drained {
				r.Faults.Note(stats.Fault{Kind: stats.Sick, Instance: i.Name, Reason: i.Reason})
			}
		}
	}
	r.Trends.Used(busy, up)
	return now
}

// Flush adds to what all hubs have recorded.
func (r *Recorder) Flush() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := errors.Join(r.Trends.Flush(ctx), r.Faults.Flush(ctx)); err != nil {
		r.Log().Debug("cannot record the fleet's statistics", "error", err)
	}
}
