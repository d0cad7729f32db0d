package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// maxModelSets bounds the classes whose models are remembered.
const maxModelSets = 10_000

// modelSets remembers which models the jobs of a class load: the files named in its requirements.
// ComfyUI keeps the models of the last prompt that it ran, so the class of an instance's last run
// says what is loaded there. The zero value is empty.
type modelSets struct {
	mu    sync.Mutex
	known map[string][]string
}

// of returns the models of a class; known is false if nobody has asked for them yet.
func (s *modelSets) of(class string) (models []string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	models, known = s.known[class]
	return models, known
}

func (s *modelSets) keep(class string, models []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxModelSets {
		s.known = map[string][]string{}
	}
	s.known[class] = models
}

// modelsIn lists the models that requirements name, each once.
func modelsIn(needs catalog.Requirements) []string {
	var models []string
	for _, c := range needs.Choices {
		if job.NamesModel(c.Value) {
			models = append(models, c.Value)
		}
	}
	slices.Sort(models)
	return slices.Compact(models)
}

// modelsOf returns the models that the jobs of a class load; none if unknown.
func (d *Dispatcher) modelsOf(ctx context.Context, class string) []string {
	if models, known := d.modelSets.of(class); known {
		return models
	}
	var models []string
	texts, err := d.queue.Requirements(ctx, []string{class})
	if err != nil {
		return nil
	}
	if needs, err := catalog.DecodeRequirements(texts[class]); err == nil {
		models = modelsIn(needs)
	}
	d.modelSets.keep(class, models)
	return models
}

// othersRun is a run of another hub.
type othersRun struct {
	key, shape string
	since      time.Time
}

// ranElsewhere notes what an instance is running and loading for another hub.
func (d *Dispatcher) ranElsewhere(e queue.Event) {
	conn := d.connection(e.Instance)
	if conn == nil || e.Hub == d.Hub {
		return
	}
	conn.mu.Lock()
	conn.precedence = precedence{key: e.Key}
	conn.mu.Unlock()
	if e.Class == "" {
		return
	}
	conn.mu.Lock()
	conn.others = othersRun{key: e.Key, shape: e.Shape, since: time.Now()}
	conn.mu.Unlock()
	d.work.Go(d.log, "noting what an instance loads", func() {
		conn.loads(d.modelsOf(d.ctx, e.Class))
	})
}

// elsewhere returns the shape of another hub's job that the instance is running, and since when;
// false if unknown.
func (conn *connection) elsewhere(i fleet.Instance) (shape string, since time.Time, ok bool) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.others.shape, conn.others.since, conn.others.shape != "" && conn.others.key == i.Report.Job
}

// Unloaded notes that an instance was told to unload its models.
func (d *Dispatcher) Unloaded(instance *comfyui.Client) {
	for _, conn := range d.connected() {
		if conn.client == instance {
			conn.loads(nil)
		}
	}
}

// loads notes which models the instance has after the run that is beginning, and reports whether it
// had others before.
func (conn *connection) loads(models []string) (cold bool) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	cold = len(models) > 0 && !slices.Equal(models, conn.loaded)
	conn.loaded, conn.cold = models, cold
	return cold
}

// load notes that the instance is beginning the run and loading its models.
func (r *run) load() {
	if r.cold = r.conn.loads(r.models); r.cold {
		r.d.Observe.Switched(r.conn.name)
	}
}

// models returns the models that the instance has, sorted.
func (conn *connection) models() []string {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.loaded
}

// warmthOf returns which of the waiting jobs may overtake which.
func (d *Dispatcher) warmthOf(ctx context.Context, jobs []job.Job, idle []schedule.Idle, now time.Time) schedule.Warmth {
	w := schedule.Warmth{Models: map[string][]string{}, Takes: d.takes(jobs, idle)}
	w.Late = d.overtaken.Late(jobs, w.Takes, d.settings().ShortFirst, now)
	for _, j := range jobs {
		if _, met := w.Models[j.Class]; !met {
			w.Models[j.Class] = d.modelsOf(ctx, j.Class)
		}
	}
	if bound := d.settings().Overtaking; bound > 0 {
		w.Overtaking, w.Due = true, d.overtaken.Due(jobs, bound, now)
		w.Ends, w.Waited = d.ends, d.holds.over(jobs, now)
	}
	return w
}

// lookBehind is how many extra jobs are read when one further back may overtake.
const lookBehind = 16

// further returns how many extra jobs to read: one further back may take less time or, if several
// classes have jobs waiting, need exactly what an instance has loaded.
func (d *Dispatcher) further(idle []schedule.Idle, wanted queue.Wanted) int {
	short := max(d.shortBehind(idle)-len(idle), 0)
	classes := len(d.classes) - len(wanted.But)
	for _, own := range wanted.Own {
		classes += len(own.Classes)
	}
	if classes < 2 || d.settings().Overtaking <= 0 ||
		!slices.ContainsFunc(idle, func(i schedule.Idle) bool { return len(i.Loaded) > 0 }) {
		return short
	}
	return max(short, lookBehind)
}
