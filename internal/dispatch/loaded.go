package dispatch

import (
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

// othersRun is a run of another hub.
type othersRun struct {
	key, shape string
	since      time.Time
}

// elsewhere returns the shape of another hub's job that the instance is running, and since when;
// false if unknown.
func (conn *connection) elsewhere(i fleet.Instance) (shape string, since time.Time, ok bool) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.others.shape, conn.others.since, conn.others.shape != "" && conn.others.key == i.Report.Job
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
		r.d.observe.Switched(r.conn.name)
	}
}

// models returns the models that the instance has, sorted.
func (conn *connection) models() []string {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	return conn.loaded
}
