package dispatch

import (
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Trust clears an instance's record of failures. It gets jobs again like any other.
func (d *Dispatcher) Trust(instance string) {
	d.health.forget(instance)
	d.Fleet.SetAside(instance, "")
	d.Wake()
}

// publish tells the fleet and the log when the verdict on an instance changes.
func (d *Dispatcher) publish(said []verdict) {
	for _, v := range said {
		i, known := d.Fleet.Instance(v.instance)
		switch {
		case !known:
			continue
		case v.evidence == "":
			d.log.Info("instance works again and is no longer set aside", "instance", v.instance)
		case !i.Aside:
			d.log.Error("instance set aside: it gets one job at a time until one succeeds", "instance", v.instance, "reason", v.evidence)
		}
		d.Fleet.SetAside(v.instance, v.evidence)
	}
	if len(said) > 0 {
		d.Wake()
	}
}

// endedWell notes that the instance has finished the run's job.
func (r *run) endedWell() {
	if r.conn != nil {
		r.d.publish(r.d.health.well(r.conn.name, r.job()))
	}
}

// cameToNothing notes that a run failed, as far as its instance may be to blame, and reports
// whether its job should be tried on another instance before the job itself is blamed.
func (r *run) cameToNothing(cause Cause) (elsewhere bool) {
	j := r.job()
	doubtful, rest, said := r.d.health.wrong(r.conn.name, j, cause, r.d.atWork(r))
	if rest > 0 {
		r.d.wakeIn(rest)
	}
	r.d.publish(said)
	return doubtful && r.sound()
}

// failedHere decides whether the client is told of a run's error, as ComfyUI would do. It is,
// unless the last runs on this instance have all failed while others do their work: then another
// instance has the last word.
func (r *run) failedHere() result {
	j := r.job()
	if r.d.health.agreed(r.conn.name, j) || !r.cameToNothing(Failed) || len(j.FailedAt) > 0 {
		return result{}
	}
	r.conn.ended(r.billed())
	return result{kind: excused, cause: Failed, elsewhere: true, reason: "it ended with an error" + r.where() + ", as the runs before it have there"}
}

// sound reports whether another instance could run the job and has nothing held against it.
func (r *run) sound() bool {
	return slices.ContainsFunc(r.d.others(r), func(conn *connection) bool {
		return r.d.trusted(conn.name) && !slices.Contains(r.job().FailedAt, conn.name)
	})
}

// atWork reports whether another instance has been executing a graph like this run's for so long
// that it evidently does not fail there the way it failed here.
func (d *Dispatcher) atWork(r *run) bool {
	structure, longer := structureOf(r.job()), max(2*r.ran(), time.Second)
	return slices.ContainsFunc(d.connected(), func(conn *connection) bool {
		other := conn.running()
		if conn == r.conn || other == nil || structureOf(other.job()) != structure {
			return false
		}
		ran, began := conn.ranFor(other, time.Now())
		return began && ran > longer
	})
}

// standIns returns what the instances that take over an instance's jobs while it rests can run.
func (d *Dispatcher) standIns(name string) (infos []*catalog.Info) {
	reserved := d.reservedFor(name)
	for _, other := range d.connected() {
		if other.name == name || !d.trusted(other.name) {
			continue
		}
		if its := d.reservedFor(other.name); its != nil && (reserved == nil || slices.ContainsFunc(reserved, func(tenant string) bool { return !schedule.MayUse(its, tenant) })) {
			continue
		}
		if info := other.abilities(); info != nil {
			infos = append(infos, info)
		}
	}
	return infos
}
