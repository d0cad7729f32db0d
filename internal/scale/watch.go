package scale

import "time"

// Load is measured over as long as machines may be idle, within these bounds: what came before
// keeps none.
const shortestLoad, longestLoad = time.Minute, 5 * time.Minute

// watch is what the hub that scales has seen of a class. It is not stored: another hub begins
// again, and keeps machines a little longer.
type watch struct {
	// since is when it began.
	since int64
	// over is the time over which load is measured, in milliseconds.
	over      int64
	instances map[string]rest
	samples   []sample
}

// rest is since when an instance has had nothing to do.
type rest struct {
	moved, since int64
}

// sample is the time that instances have worked until a moment, and the work that waited then.
type sample struct {
	at, worked, waiting int64
	busy                int
}

func newWatch(now int64, idleAfter time.Duration) *watch {
	return &watch{since: now, over: min(max(idleAfter, shortestLoad), longestLoad).Milliseconds(), instances: map[string]rest{}}
}

// look takes in what is there.
func (w *watch) look(now int64, v View) {
	busy, there := 0, make(map[string]rest, len(v.Instances))
	for _, i := range v.Instances {
		r, known := w.instances[i.Name]
		if !known || i.Busy || r.moved != i.Moved {
			r = rest{i.Moved, now}
		}
		there[i.Name] = r
		if i.Busy {
			busy++
		}
	}
	w.instances = there
	s := sample{at: now, busy: busy}
	for _, work := range v.Waiting {
		s.waiting += work.Milliseconds()
	}
	if n := len(w.samples); n > 0 {
		last := w.samples[n-1]
		s.worked = last.worked + int64(last.busy)*max(now-last.at, 0)
	}
	w.samples = append(w.samples, s)
	for len(w.samples) > 1 && w.samples[1].at <= now-w.over {
		w.samples = w.samples[1:]
	}
}

// load is how many instances the work that came lately keeps busy.
func (w *watch) load() float64 {
	if len(w.samples) == 0 {
		return 0
	}
	first, last := w.samples[0], w.samples[len(w.samples)-1]
	came := last.worked - first.worked + last.waiting - first.waiting
	return float64(max(came, 0)) / float64(w.over)
}

// idle is how long an instance has had nothing to do.
func (w *watch) idle(now int64, instance string) time.Duration {
	r, known := w.instances[instance]
	if !known {
		return 0
	}
	return time.Duration(now-r.since) * time.Millisecond
}

// missing is how long an instance has been away that was last seen at a time. While nobody was
// looking, nobody missed it.
func (w *watch) missing(now, seen int64) time.Duration {
	return time.Duration(now-max(seen, w.since)) * time.Millisecond
}
