package dispatch

import (
	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
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

// others returns the other connected instances that could run the run's job, without those that cost
// money.
func (is *Instances) others(r *run) (others []*instance.Link) {
	needs, err := catalog.DecodeRequirements(r.body.Requires)
	if err != nil {
		return nil
	}
	key, tenant := r.Job().Key, r.Job().Tenant
	for _, conn := range is.Open() {
		if conn != r.conn && conn.Kind != fleet.KindOverflow && is.access.mayUse(tenant, conn.Name) && !conn.Refused.Itself(key) && conn.Abilities() != nil && len(conn.Abilities().Satisfies(needs)) == 0 {
			others = append(others, conn)
		}
	}
	return others
}

// Activities returns what the connected instances are doing, by name.
func (is *Instances) Activities() map[string]Activity {
	is.watched.note()
	connected := is.Open()
	all := make(map[string]Activity, len(connected))
	for _, conn := range connected {
		all[conn.Name] = activityOf(conn)
	}
	return all
}

// Activity returns what one instance is doing; the zero value if it is not connected.
func (is *Instances) Activity(instance string) Activity {
	if conn := is.Get(instance); conn != nil {
		return activityOf(conn)
	}
	return Activity{}
}

// Preview returns the latest picture of the run that this hub follows at an instance, if the run is
// of the given job. The first call for a run finds none: pictures are kept only while somebody asks
// for them.
func (is *Instances) Preview(instance, key string) (comfyui.Binary, bool) {
	conn := is.Get(instance)
	if conn == nil {
		return comfyui.Binary{}, false
	}
	r := runsOf(conn)[0]
	if r == nil || r.Job().Key != key {
		return comfyui.Binary{}, false
	}
	return r.doing.picture()
}

// Evict takes back what an instance is running for this hub: the run is interrupted, and its job
// goes back to the queue as if it had never been given out. It returns at once, while the instance
// may still be busy, so call it again until the instance is free.
func (is *Instances) Evict(instance string) {
	conn := is.Get(instance)
	if conn == nil {
		return
	}
	for _, r := range runsOf(conn) {
		if r != nil {
			r.mail.put(runEvent{kind: evictAsked})
		}
	}
}
