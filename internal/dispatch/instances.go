package dispatch

import (
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/run"
)

// Instances are the instances that this hub is connected to.
type Instances struct {
	*instance.Links
	access *Access
	// watched says that somebody is watching the fleet.
	watched interest
}

// ClientsOf returns the clients of the connected instances of a kind that run jobs of a
// tenant, by their names.
func (is *Instances) ClientsOf(kind, tenant string) []*comfyui.Client {
	var out []*comfyui.Client
	for _, conn := range is.Open() {
		if conn.Kind == kind && is.access.mayUse(tenant, conn.Name) {
			out = append(out, conn.Client)
		}
	}
	return out
}

// Others implements [run.Elsewhere].
func (is *Instances) Others(than *instance.Link, j job.Job, requires []byte) (others []*instance.Link) {
	needs, err := catalog.DecodeRequirements(requires)
	if err != nil {
		return nil
	}
	for _, conn := range is.Open() {
		if conn != than && conn.Kind != fleet.KindOverflow && is.access.mayUse(j.Tenant, conn.Name) && !conn.Refused.Itself(j.Key) && conn.Abilities() != nil && len(conn.Abilities().Satisfies(needs)) == 0 {
			others = append(others, conn)
		}
	}
	return others
}

// Watched implements [run.Elsewhere].
func (is *Instances) Watched() bool { return is.watched.any() }

// Activities returns what the connected instances are doing, by name.
func (is *Instances) Activities() map[string]run.Activity {
	is.watched.note()
	connected := is.Open()
	all := make(map[string]run.Activity, len(connected))
	for _, conn := range connected {
		all[conn.Name] = run.ActivityOf(conn)
	}
	return all
}

// Activity returns what one instance is doing; the zero value if it is not connected.
func (is *Instances) Activity(instance string) run.Activity {
	if conn := is.Get(instance); conn != nil {
		return run.ActivityOf(conn)
	}
	return run.Activity{}
}

// Preview returns the latest picture of the run that this hub follows at an instance, if the run is
// of the given job. The first call for a run finds none: pictures are kept only while somebody asks
// for them.
func (is *Instances) Preview(instance, key string) (comfyui.Binary, bool) {
	conn := is.Get(instance)
	if conn == nil {
		return comfyui.Binary{}, false
	}
	return run.PreviewAt(conn, key)
}

// Evict takes back what an instance is running for this hub: the run is interrupted, and its job
// goes back to the queue as if it had never been given out. It returns at once, while the instance
// may still be busy, so call it again until the instance is free.
func (is *Instances) Evict(instance string) {
	conn := is.Get(instance)
	if conn == nil {
		return
	}
	for _, r := range run.Of(conn) {
		if r != nil {
			r.Evict()
		}
	}
}

// watchedFor is how long after a call of Activities runs keep noting the class of their nodes.
const watchedFor = 10 * time.Second

// interest says until when somebody is interested. The zero value means nobody is.
type interest struct{ until atomic.Int64 } // Unix nanoseconds

func (i *interest) note() { i.until.Store(time.Now().Add(watchedFor).UnixNano()) }

func (i *interest) any() bool { return time.Now().UnixNano() < i.until.Load() }
