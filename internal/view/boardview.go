package view

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/webui/origin"
)

const (
	// shownWaiting bounds the waiting jobs that are shown individually.
	shownWaiting = 200
	// jobFresh is how old the knowledge about a waiting job may be, and jobKept how long a job is
	// remembered that nobody has asked for.
	jobFresh, jobKept = 3 * time.Second, 15 * time.Second
)

// boardSeen is what a view shows at one moment. It does not change any more.
type boardSeen struct {
	instances map[string]InstanceRow
	jobs      map[string]JobRow
	counts    QueueCounts
	// webUI is where ComfyUI's page comes from.
	webUI origin.WebUISource
	// strangers is why nothing is deleted from the storage.
	strangers string
}

// boardView is what everybody with the same sight sees.
type boardView struct {
	sight    sight
	seen     boardSeen
	watchers map[*Watcher]bool
}

func newBoardView(s sight) *boardView {
	return &boardView{sight: s, watchers: map[*Watcher]bool{}}
}

// cut ends the watch of a reader that does not read.
func (v *boardView) cut(w *Watcher) {
	close(w.changes)
	delete(v.watchers, w)
}

// everything returns a change that shows everything.
func (v *boardView) everything() *BoardChange {
	c := v.since(boardSeen{})
	counts, webUI, strangers := v.seen.counts, v.seen.webUI, v.seen.strangers // they change while this is read
	c.Whole, c.Counts, c.WebUI, c.Strangers = true, &counts, &webUI, &strangers
	return c
}

// since returns what has changed since before.
func (v *boardView) since(before boardSeen) *BoardChange {
	c := &BoardChange{}
	c.Instances, c.GoneInstances = changed(before.instances, v.seen.instances)
	c.Jobs, c.GoneJobs = changed(before.jobs, v.seen.jobs)
	if counts := v.seen.counts; counts != before.counts {
		c.Counts = &counts
	}
	if from := v.seen.webUI; from != before.webUI {
		c.WebUI = &from
	}
	if why := v.seen.strangers; why != before.strangers {
		c.Strangers = &why
	}
	return c
}

// show takes in what was seen, and tells everybody who is watching what has changed.
func (v *boardView) show(seen boardSeen) {
	before := v.seen
	v.seen = seen
	change := v.since(before)
	if change.Empty() {
		return
	}
	for w := range v.watchers {
		select {
		case w.changes <- change:
		default:
			v.cut(w)
		}
	}
}

// look returns what is there now. On an error it keeps what was seen of the queue.
func (v *boardView) look(ctx context.Context, b *Board, now *boardNow, queued bool) (boardSeen, error) {
	seen := boardSeen{instances: make(map[string]InstanceRow, len(now.instances)), jobs: v.seen.jobs, counts: v.seen.counts}
	if v.sight.all {
		seen.webUI, seen.strangers = b.insight.Pages.Where(), b.insight.strangers()
	}
	var elsewhere []string
	running := map[string]bool{}
	for _, i := range now.instances {
		running[i.Report.Job], running[now.activities[i.Name].Job.Key] = true, true
		if i.Report.Job != "" && now.activities[i.Name].Job.Key == "" {
			elsewhere = append(elsewhere, i.Report.Job)
		}
	}
	others, err := b.jobs.read(ctx, b.queue.GetAll, elsewhere)
	at, left := time.Now(), b.dispatch.Forecasts.Left()
	for _, i := range now.instances {
		a := now.activities[i.Name]
		j := a.Job
		if j.Key == "" && others[i.Report.Job].State.Live() {
			j = others[i.Report.Job]
		}
		shown := j
		if a.Job.Key == "" && j.StartedAt > 0 {
			shown.StartedAt = b.queue.Clock().When(j.StartedAt).UnixMilli()
		}
		row, was := instanceRow(v.sight, i, a, shown, b.faults.Last(i.Name)), v.seen.instances[i.Name]
		if row.Key != was.Key {
			was.ETA = 0
		}
		if row.Key != "" {
			row.ETA = etaAt(at, left(j), was.ETA)
		}
		seen.instances[i.Name] = row
	}
	if queued && err == nil {
		return seen, v.lookAtQueue(ctx, b, &seen, running)
	}
	seen.jobs = without(seen.jobs, running)
	return seen, err
}

// without returns the rows of the jobs that are not among keys.
func without(jobs map[string]JobRow, keys map[string]bool) map[string]JobRow {
	among := func(key string, _ JobRow) bool { return keys[key] }
	for key := range keys {
		if _, shown := jobs[key]; shown {
			jobs = maps.Clone(jobs)
			maps.DeleteFunc(jobs, among)
			break
		}
	}
	return jobs
}

// lookAtQueue reads the first waiting jobs that the view shows. A job known to be running is no
// longer waiting, whatever was read about it a moment ago.
func (v *boardView) lookAtQueue(ctx context.Context, b *Board, seen *boardSeen, running map[string]bool) error {
	live, waiting, _, err := b.queue.CountAll(ctx)
	if err != nil {
		return err
	}
	counts := QueueCounts{Waiting: waiting, Running: live - waiting, OwnWaiting: waiting, OwnRunning: live - waiting}
	counts.Paused = b.insight.Stops.Has(queue.StopAll)
	if !v.sight.operator {
		if live, waiting, err = b.queue.CountOf(ctx, v.sight.tenant); err != nil {
			return err
		}
		counts.OwnWaiting, counts.OwnRunning = waiting, live-waiting
		counts.TenantPaused = b.insight.Stops.Has(queue.StopTenant(v.sight.tenant))
	}
	keys, err := b.queue.HeadKeys(ctx, v.sight.tenant, counts.OwnRunning+shownWaiting)
	if err != nil {
		return err
	}
	jobs, err := b.jobs.read(ctx, b.queue.GetAll, keys)
	if err != nil {
		return err
	}
	var shown []job.Job
	at, clock := time.Now(), b.queue.Clock()
	stored := clock.Now()
	for _, key := range keys {
		if j, ok := jobs[key]; ok && !running[key] && j.Seen().State == job.Queued && !j.AtDoor(stored) {
			shown = append(shown, j)
		}
	}
	seen.counts, seen.jobs = counts, make(map[string]JobRow, len(shown))
	outlook, clean := b.dispatch.Forecasts.From(ctx, shown...), b.insight.cleaner(v.sight.all)
	for n, position := range b.insight.Positions(ctx, shown...) {
		j := shown[n]
		row := JobRow{
			Key: j.Key, ID: j.ID, Tenant: j.Tenant, Order: strings.TrimSuffix(j.Rank, j.Key), Priority: j.Priority, Band: j.Band(),
			Position: position, Paused: j.Paused, Attempts: j.Attempts, Created: clock.When(j.CreatedAt).UnixMilli(),
		}
		if j.Reason != "" {
			row.Why = clean(j.Reason)
		}
		if !j.Paused {
			row.ETA = etaAt(at, b.insight.eta(outlook, j, position), v.seen.jobs[j.Key].ETA)
		}
		seen.jobs[j.Key] = row
	}
	return nil
}

// boardJobs are jobs that were read recently: a job that waits or runs for long is not read at each
// look. The zero value is empty.
type boardJobs struct {
	mu    sync.Mutex
	known map[string]readJob
	// touched counts the jobs that have changed, as far as this hub knows.
	touched int
}

// touch makes the next look read a job again.
func (k *boardJobs) touch(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, key)
	k.touched++
}

// forget empties it.
func (k *boardJobs) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known = nil
}

type readJob struct {
	job      job.Job
	read, at time.Time // at is when it was last asked for
}

// read returns those of the jobs that exist.
func (k *boardJobs) read(ctx context.Context, get func(context.Context, []string) ([]job.Job, error), keys []string) (map[string]job.Job, error) {
	now := time.Now()
	stale, touched := k.stale(keys, now)
	if len(stale) == 0 {
		return k.of(keys, now), nil
	}
	jobs, err := get(ctx, stale)
	if err == nil {
		k.learn(stale, jobs, now, touched)
	}
	return k.of(keys, now), err
}

// stale returns those of the jobs that are to be read, and how many have changed so far.
func (k *boardJobs) stale(keys []string, now time.Time) (stale []string, touched int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		if r, known := k.known[key]; !known || now.Sub(r.read) > jobFresh {
			stale = append(stale, key)
		}
	}
	return stale, k.touched
}

// learn notes jobs that were read since touched others had changed; those of the keys that are not among
// them do not exist.
func (k *boardJobs) learn(keys []string, jobs []job.Job, now time.Time, touched int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = map[string]readJob{}
	}
	read := now
	if touched != k.touched { // perhaps one of them has, so the next look reads them again
		read = time.Time{}
	}
	for _, key := range keys {
		k.known[key] = readJob{read: read, at: now} // unless it is there
	}
	for _, j := range jobs {
		k.known[j.Key] = readJob{job: j, read: read, at: now}
	}
}

// of returns what is known of jobs, and forgets those that nobody has asked for lately.
func (k *boardJobs) of(keys []string, now time.Time) map[string]job.Job {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make(map[string]job.Job, len(keys))
	for _, key := range keys {
		if r, known := k.known[key]; known && r.job.Key != "" {
			r.at = now
			k.known[key] = r
			all[key] = r.job
		}
	}
	for key, r := range k.known {
		if now.Sub(r.at) > jobKept {
			delete(k.known, key)
		}
	}
	return all
}

// encoded is the text of a change, made once for all who watch.
type encoded struct {
	once sync.Once
	text []byte
}

// Encoded returns the change as text, made once by whoever asks first.
func (c *BoardChange) Encoded(encode func(*BoardChange) []byte) []byte {
	c.encoded.once.Do(func() { c.encoded.text = encode(c) })
	return c.encoded.text
}
