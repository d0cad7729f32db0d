package run

import (
	"log/slog"
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/instance"
)

// Health is how the instances are doing, and who is to blame when runs fail: the instance or the job.
type Health struct {
	streaks
	fleet   *fleet.Registry
	reports *instance.Reports
	links   *instance.Links
	signal  Signal
	log     *slog.Logger
}

// NewHealth holds nothing against any instance.
func NewHealth(registry *fleet.Registry, reports *instance.Reports, links *instance.Links, signal Signal, log *slog.Logger) *Health {
	return &Health{fleet: registry, reports: reports, links: links, signal: signal, log: log}
}

// Trust clears an instance's record of failures. It gets jobs again like any other.
func (h *Health) Trust(instance string) {
	h.forget(instance)
	h.fleet.SetAside(instance, "")
	h.signal.Wake()
}

// publish tells the fleet and the log when the verdict on an instance changes.
func (h *Health) publish(said []verdict) {
	for _, v := range said {
		i, known := h.fleet.Instance(v.instance)
		switch {
		case !known:
			continue
		case v.evidence == "":
			h.log.Info("instance works again and is no longer set aside", "instance", v.instance)
		case !i.Aside:
			h.log.Error("instance set aside: it gets one job at a time until one succeeds", "instance", v.instance, "reason", v.evidence)
		}
		h.fleet.SetAside(v.instance, v.evidence)
	}
	if len(said) > 0 {
		h.signal.Wake()
	}
}

// atWork reports whether another instance has been executing a graph like this run's for so long
// that it evidently does not fail there the way it failed here.
func (h *Health) atWork(r *Run) bool {
	structure, longer := structureOf(r.Job()), max(2*r.ran(), time.Second)
	return slices.ContainsFunc(h.links.Open(), func(conn *instance.Link) bool {
		other := Of(conn)[0]
		if conn == r.conn || other == nil || structureOf(other.Job()) != structure {
			return false
		}
		ran, began := conn.RanFor(other.Holder(), time.Now())
		return began && ran > longer
	})
}

// Trusted reports whether an instance works, as far as is known.
func (h *Health) Trusted(name string) bool { return h.reports.Works(name) && !h.Doubts(name) }
