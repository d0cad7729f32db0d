package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

// Outlook tells when jobs will be finished, from the moment at which it was made.
type Outlook struct {
	d    *Dispatcher
	at   time.Time
	took time.Duration
	// judged are the classes that it knows about.
	judged map[string]bool
	spots  []busySpot
	// free is when instances have ended what they run; -1 where that cannot be said.
	free map[string]time.Duration
	// order are the jobs in line as they will probably begin.
	order []job.Job
	// ends are those of the jobs in line, by key; -1 where it cannot be said.
	ends  map[string]time.Duration
	known map[[2]string]schedule.Estimate
	room  room
	// mean is the mean run of the line, and length how many jobs are in it.
	mean   time.Duration
	length int
}

// busySpot is an instance that takes jobs, and what is known of its time.
type busySpot struct {
	schedule.Idle
	gpu, loaded string
	free        time.Duration
	// device is the GPU itself, see gpuName, and shape that of the run that ends at free.
	device, shape string
}

// An outlook answers for further jobs until it is outlookShare times as old as it took to
// make, and at most outlookAge: to look at hundreds of instances for each of hundreds of
// accepted jobs would cost too much.
const (
	outlookShare = 20
	outlookAge   = 250 * time.Millisecond
)

// lastOutlook is the one that answers for accepted jobs. The zero value is none.
type lastOutlook struct {
	mu   sync.Mutex
	last *Outlook
}

// Accepted notes a job that was accepted with some others ahead of it, and returns how
// long it will take until it is finished, as [Outlook.ETA] does.
func (d *Dispatcher) Accepted(ctx context.Context, j job.Job, position int) time.Duration {
	if position >= 0 && j.State == job.Queued {
		d.line.join(inLine(j), position)
	}
	d.outlook.mu.Lock()
	defer d.outlook.mu.Unlock()
	if o := d.outlook.last; o == nil || time.Since(o.at) > min(outlookShare*o.took, outlookAge) || !o.judged[j.Class] {
		d.outlook.last = d.Outlook(ctx, j)
	}
	return d.outlook.last.ETA(j, position)
}

// Outlook looks ahead: it gives the first waiting jobs, in the order in which they will
// probably begin, each to the instance that will have finished it first. Classes that this hub does not
// know yet cost a round trip.
func (d *Dispatcher) Outlook(ctx context.Context, jobs ...job.Job) *Outlook {
	o := &Outlook{d: d, at: time.Now(), judged: map[string]bool{}, ends: map[string]time.Duration{}, known: map[[2]string]schedule.Estimate{}, free: map[string]time.Duration{}}
	ahead := d.line.first()
	o.length = len(ahead)
	o.look(ctx, ahead, jobs)
	var sum time.Duration
	o.order = o.inTurn(ahead)
	for _, j := range o.order {
		end, ran := o.give(j)
		o.ends[j.Key] = end
		sum += ran
	}
	if o.length > 0 {
		o.mean = sum / time.Duration(o.length)
	}
	o.took = time.Since(o.at)
	return o
}

// look lists the instances that take jobs.
func (o *Outlook) look(ctx context.Context, ahead []job.Job, jobs []job.Job) {
	var classes []string
	note := func(class string) {
		if !o.judged[class] {
			o.judged[class] = true
			classes = append(classes, class)
		}
	}
	for _, j := range ahead {
		note(j.Class)
	}
	for _, j := range jobs {
		if j.State == job.Queued {
			note(j.Class)
		}
	}
	if len(classes) == 0 {
		return
	}
	texts, err := o.d.queue.Requirements(ctx, classes)
	if err != nil {
		return
	}
	said := o.d.settings().GPUs
	o.room = room{o.d.sharedGPUs(), map[string][]int{}}
	var idle []schedule.Idle
	var infos []*catalog.Info
	for _, conn := range o.d.connected() {
		i, known := o.d.Fleet.Instance(conn.name)
		info := conn.abilities()
		if !known || info == nil || i.State != fleet.Idle && i.State != fleet.Busy {
			continue
		}
		gpu := schedule.GPUType(i.Report.GPU)
		idle, infos = append(idle, schedule.Idle{Name: conn.name, Tenants: o.d.reservedFor(conn.name)}), append(infos, info)
		left := o.left(conn, i, gpu)
		s := busySpot{gpu: gpu, free: left, loaded: schedule.SetOf(conn.models()), device: gpuName(said, i)}
		if o.room.shared[s.device] != nil {
			s.shape, _ = o.d.shapeAt(i)
			o.room.users[s.device] = append(o.room.users[s.device], len(o.spots))
		}
		o.spots = append(o.spots, s)
		if o.free[conn.name] = left; !o.foreseen(conn, i, gpu) {
			o.free[conn.name] = -1
		}
	}
	o.d.judged.able(idle, infos, texts)
	for n := range idle {
		o.spots[n].Idle = idle[n]
	}
}

// left is how long an instance will still be busy.
func (o *Outlook) left(conn *connection, i fleet.Instance, gpu string) time.Duration {
	runs := conn.runs()
	switch {
	case runs[0] != nil:
		sum := o.rest(conn, runs[0], gpu)
		if runs[1] != nil {
			sum += o.estimate(runs[1].job().Shape, gpu).Ran
		}
		return sum
	case i.State == fleet.Busy: // with a run of another hub
		if shape, since, ok := conn.elsewhere(i); ok {
			return remaining(o.estimate(shape, gpu).Ran, time.Since(since))
		}
		return o.estimate("", gpu).Ran / 2
	}
	return 0
}

// rest is how long the current run of an instance will still take.
func (o *Outlook) rest(conn *connection, r *run, gpu string) time.Duration {
	e := o.estimate(r.job().Shape, gpu)
	conn.mu.Lock()
	begun, began := conn.begun == r, conn.began
	if conn.cold {
		e.Ran += e.Load
	}
	conn.mu.Unlock()
	if !begun {
		return e.Ran
	}
	return remaining(e.Ran, time.Since(began))
}

// remaining is the rest of a run. One that takes longer than it should may take a tenth
// of its time more.
func remaining(estimate, elapsed time.Duration) time.Duration {
	return max(estimate-elapsed, elapsed/10)
}

func (o *Outlook) estimate(shape, gpu string) schedule.Estimate {
	k := [2]string{shape, gpu}
	e, ok := o.known[k]
	if !ok {
		if e = o.d.estimate(shape, gpu); certain(e) { // else it may be known in a moment
			o.known[k] = e
		}
	}
	return e
}

// inTurn returns waiting jobs with short ones first, as Pick takes them. It does not know
// how long each has been overtaken already.
func (o *Outlook) inTurn(waiting []job.Job) []job.Job {
	idle := make([]schedule.Idle, 0, 1)
	if len(o.spots) > 0 {
		idle = append(idle, o.spots[0].Idle)
	}
	order, _ := schedule.ShortFirst(waiting, schedule.Warmth{Takes: o.d.takes(waiting, idle), Overtaking: o.d.settings().Overtaking > 0})
	return order
}

// give gives a job to the instance that will have finished it first, and returns when it
// ends there, and how long it runs; -1 and 0 if no instance can run it, and -1 if its own run time
// is not known.
func (o *Outlook) give(j job.Job) (end, ran time.Duration) {
	models, _ := o.d.modelSets.of(j.Class)
	set := schedule.SetOf(models)
	var first *busySpot
	var e schedule.Estimate // on the GPU type gpu
	var gpu string
	for n := range o.spots {
		s := &o.spots[n]
		if !s.Can(j) {
			continue
		}
		if gpu != s.gpu || first == nil {
			gpu = s.gpu
			e = o.estimate(j.Shape, s.gpu)
		}
		takes := e.Ran
		if set != "" && set != s.loaded {
			takes += e.Load
		}
		if by := o.from(s, j) + takes; first == nil || by < end {
			first, end, ran = s, by, takes
		}
	}
	if first == nil {
		return -1, 0
	}
	if set != "" {
		first.loaded = set
	}
	first.free, first.shape = end, j.Shape
	if !certain(o.estimate(j.Shape, first.gpu)) {
		return -1, ran
	}
	return end, ran
}

// certain reports whether an estimate is good enough to be told: the same structure has
// run before.
func certain(e schedule.Estimate) bool {
	return e.Source == schedule.Learned || e.Source == schedule.OtherGPU
}

// ETA returns how long it will take until a job is finished; -1 if that cannot be said.
// position counts the jobs ahead of one that waits, -1 if that is not known.
func (o *Outlook) ETA(j job.Job, position int) time.Duration {
	switch {
	case j.State == job.Leased || j.State == job.Running:
		e := o.estimate(j.Shape, o.d.gpuOf(j.Run.Instance))
		switch {
		case !certain(e):
			return -1
		case j.StartedAt == 0:
			return e.Ran
		}
		return remaining(e.Ran, max(time.Since(o.d.queue.Clock().When(j.StartedAt)), 0))
	case j.State != job.Queued:
		return -1
	}
	if r := o.d.followed(j.Key); r != nil { // it was given out meanwhile
		return o.given(r)
	}
	if end, ok := o.ends[j.Key]; ok {
		return end
	}
	return o.behind(j, position)
}

// given is when a job ends that an instance was given, perhaps behind another one.
func (o *Outlook) given(r *run) time.Duration {
	j := r.job()
	gpu := o.d.gpuOf(j.Run.Instance)
	e, conn := o.estimate(j.Shape, gpu), o.d.connection(j.Run.Instance)
	switch {
	case !certain(e):
		return -1
	case conn == nil:
		return e.Ran
	}
	runs := conn.runs()
	if runs[0] == nil || runs[0] == r {
		return o.rest(conn, r, gpu)
	}
	return o.rest(conn, runs[0], gpu) + e.Ran
}

// behind is when a job ends that is behind the line: between them others wait that run
// for as long as the line's do on average.
func (o *Outlook) behind(j job.Job, position int) time.Duration {
	if position < 0 {
		return -1
	}
	var free []time.Duration
	gpu := ""
	for _, s := range o.spots {
		if s.Classes[j.Class] {
			free, gpu = append(free, s.free), s.gpu
		}
	}
	e := o.estimate(j.Shape, gpu)
	each := o.mean
	if o.length == 0 { // they have come since
		each = e.Ran
	}
	start, ok := schedule.Wait(free, max(position-o.length, 0), each)
	if !ok || !certain(e) {
		return -1
	}
	return start + e.Ran
}
