package queue_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// The model states the rules of the queue in plain Go: maps and slices, no Redis. The test takes
// the same random steps on both and compares everything visible after each step. The steps are the
// same each time. COMFYHUB_SEED changes them, and COMFYHUB_STEPS sets how many there are.

const modelAttempts = 3

type modelJob struct {
	job.Job
	requires            string
	cancelAsked         bool
	killedAt            []string // the instances that died in its runs
	exhausted, released bool
	withdrawn           bool  // taken back while it ran
	listed              bool  // and its end leaves an entry
	gone                bool  // ended without an entry
	expired             bool  // its lease has ended
	reruns              int   // excused runs that had begun to execute
	paused              bool  // must not run yet, and not before the end of the test
	stopped             bool  // paused by its owner
	weight              int64 // stored bytes of its body and its secrets
	placed              bool  // has a place among its tenant's callers
	place               float64
	raised              string // the number that the history shows, if not its own
}

// lane is the job's tenant in its band.
func (j *modelJob) lane() string { return j.Tenant + j.Band().Mark() }

func (j *modelJob) runs() bool { return j.State == job.Leased || j.State == job.Running }

type model struct {
	jobs      map[string]*modelJob
	newest    map[[2]string]string // tenant, id -> key
	numbers   map[string]int
	highest   map[string]int // tenant -> highest number in its history, plus one
	turns     turns
	passed    [3]int          // by band: jobs of higher ones that went before its own
	barred    map[string]bool // tenants that were at their limit of runs
	instances map[string]string
	history   []string // keys in their places
	ends      []string // keys in the order of their ends, without delivered ones
}

func newModel() *model {
	return &model{
		jobs: map[string]*modelJob{}, newest: map[[2]string]string{}, numbers: map[string]int{}, instances: map[string]string{},
		highest: map[string]int{}, turns: newTurns(), barred: map[string]bool{},
	}
}

// do makes a transition, using the table of package job.
func (m *model) do(j *modelJob, e job.Event) {
	next, err := job.Next(j.State, e)
	if err != nil {
		panic(err)
	}
	j.State = next
}

func (m *model) held(run job.Run) *modelJob {
	j := m.jobs[run.Key]
	if j == nil || !j.runs() || j.Fence != run.Fence {
		return nil
	}
	return j
}

func (m *model) free(j *modelJob) {
	if !j.released {
		delete(m.barred, j.Tenant)
	}
	j.released = true
	if m.instances[j.Run.Instance] == j.Key {
		delete(m.instances, j.Run.Instance)
	}
}

func (m *model) forget(key string) {
	j := m.jobs[key]
	if m.newest[[2]string{j.Tenant, j.ID}] == key {
		delete(m.newest, [2]string{j.Tenant, j.ID})
	}
	m.history = slices.DeleteFunc(m.history, func(k string) bool { return k == key })
	m.ends = slices.DeleteFunc(m.ends, func(k string) bool { return k == key })
	delete(m.jobs, key)
}

// end writes a history entry, which replaces one with the same id. The numbers in a history grow in the order of
// the ends, as with one ComfyUI: its web UI only looks for numbers higher than those it shows.
func (m *model) end(j *modelJob, reason string) {
	j.Reason = reason
	if n, err := strconv.Atoi(j.Number); err == nil && n >= 0 { // the hub's own, not from the front
		if n < m.highest[j.Tenant] {
			n = m.highest[j.Tenant]
			j.raised = strconv.Itoa(n)
		}
		m.highest[j.Tenant] = n + 1
	}
	place := slices.IndexFunc(m.history, func(k string) bool {
		return m.jobs[k].Tenant == j.Tenant && m.jobs[k].ID == j.ID
	})
	if place < 0 {
		m.history = append(m.history, j.Key)
	} else {
		old := m.history[place]
		m.history[place] = j.Key
		m.forget(old)
		if _, ok := m.newest[[2]string{j.Tenant, j.ID}]; !ok {
			m.newest[[2]string{j.Tenant, j.ID}] = j.Key
		}
	}
	m.ends = append(m.ends, j.Key)
	m.left(j.Tenant)
}

// hasEntry reports whether another job of a job's id is in the history.
func (m *model) hasEntry(j *modelJob) bool {
	return slices.ContainsFunc(m.history, func(k string) bool { return m.jobs[k].Tenant == j.Tenant && m.jobs[k].ID == j.ID })
}

func (m *model) live(keep func(j *modelJob) bool) []*modelJob {
	var out []*modelJob
	for _, j := range m.jobs {
		if j.State.Live() && !j.withdrawn && keep(j) {
			out = append(out, j)
		}
	}
	slices.SortFunc(out, func(a, b *modelJob) int { return strings.Compare(a.Rank, b.Rank) })
	return out
}

// seen is the part of a job that is compared.
type seen struct {
	Key, ID, Tenant, Caller, Rank, Reason, Lost, FailedAt string
	State                                                 job.State
	Ahead                                                 bool
	Attempts, Excuses, Kills                              int
	Fence                                                 int64
	Instance, Hub, Upstream                               string
}

func look(j job.Job) seen {
	return seen{
		j.Key, j.ID, j.Tenant, j.Caller, j.Rank, j.Reason, strings.Join(j.Lost, "|"), strings.Join(j.FailedAt, "|"), j.State, j.Ahead && j.State == job.Leased,
		j.Attempts, j.Excuses, j.Kills, j.Fence, j.Run.Instance, j.Run.Hub, j.Run.Upstream,
	}
}

func lookAll(jobs []job.Job) []seen {
	out := []seen{}
	for _, j := range jobs {
		out = append(out, look(j))
	}
	return out
}

func lookModel(jobs []*modelJob) []seen {
	out := []seen{}
	for _, j := range jobs {
		out = append(out, look(j.Job))
	}
	return out
}

// compare checks everything that is visible.
func (w *walk) compare() {
	t := w.t
	all := func(*modelJob) bool { return true }
	live := must(w.Live(w.ctx, ""))
	require.Equal(t, lookModel(w.m.live(all)), lookAll(live))
	queued := w.m.live(func(j *modelJob) bool { return j.State == job.Queued })
	waiting := slices.DeleteFunc(slices.Clone(queued), func(j *modelJob) bool { return j.stopped })
	classes := map[string][]byte{}
	for _, j := range waiting {
		classes[j.Class] = []byte(j.requires)
	}
	require.Equal(t, classes, must(w.Classes(w.ctx)))
	require.Equal(t, lookModel(waiting[:min(5, len(waiting))]), lookAll(must(w.Peek(w.ctx, []string{"class0", "class1", "class2"}, 5))))
	w.compareIndex(waiting)
	w.compareWindow(waiting)
	n, count, _, err := w.CountAll(w.ctx)
	require.NoError(t, err)
	require.Equal(t, []int{len(live), len(queued)}, []int{n, count})
	w.compareShares(queued)
	w.compareInstances()
	w.compareHistoryShares()
	runs := must(w.Runs(w.ctx))
	hidden := 0
	for _, j := range w.m.jobs {
		if j.withdrawn && j.runs() {
			hidden++
		}
	}
	require.Len(t, runs, len(live)-len(queued)+hidden)
	caller := fmt.Sprint("c", w.step%3)
	require.Equal(t, lookModel(w.m.live(func(j *modelJob) bool { return j.Caller == caller })), lookAll(must(w.LiveOf(w.ctx, caller))))
	for _, tenant := range []string{"t0", "t1"} {
		w.compareListings(tenant)
		keys, want := [][2]string{}, [][2]string{}
		for _, e := range must(w.History(w.ctx, tenant, queue.Page{})) {
			keys = append(keys, [2]string{e.Key, e.Number})
		}
		for _, key := range w.m.history {
			if j := w.m.jobs[key]; j.Tenant == tenant {
				want = append(want, [2]string{key, j.raised})
			}
		}
		require.Equal(t, want, keys)
		ends := []job.Job{}
		for _, key := range w.m.ends {
			if j := w.m.jobs[key]; j.Tenant == tenant && j.Client == "client" {
				ends = append(ends, j.Job)
			}
		}
		require.Equal(t, lookAll(ends), lookAll(must(w.Undelivered(w.ctx, tenant, "client"))))
	}
	if j := w.anyJob(); j != nil {
		got, err := w.Find(w.ctx, j.Tenant, j.ID)
		if key, ok := w.m.newest[[2]string{j.Tenant, j.ID}]; ok {
			require.NoError(t, err)
			require.Equal(t, key, got.Key)
		} else {
			require.ErrorIs(t, err, queue.ErrNotFound)
		}
		require.Equal(t, look(j.Job), look(w.get(j.Key)))
		_, err = w.Body(w.ctx, j.Key)
		require.Equal(t, j.State.Live(), err == nil, "its body is there as long as it may run: %v", err)
	}
}

// compareListings compares a tenant's live jobs with the model. Listed may report about a waiting
// job what was true before it was given out.
func (w *walk) compareListings(tenant string) {
	t, own := w.t, w.m.live(func(j *modelJob) bool { return j.Tenant == tenant })
	listed := must(w.Listed(w.ctx, tenant))
	require.Len(t, listed, len(own))
	for n, j := range listed {
		if j.State != job.Queued {
			require.Equal(t, look(own[n].Job), look(j))
		}
		require.Equal(t, []any{own[n].Key, own[n].ID, own[n].Caller, own[n].Rank, own[n].State, own[n].stopped},
			[]any{j.Key, j.ID, j.Caller, j.Rank, j.State, j.Paused})
	}
	require.Equal(t, lookModel(own), lookAll(must(w.Live(w.ctx, tenant))))
}

// compareWindow compares a part of the waiting jobs with the model.
func (w *walk) compareWindow(waiting []*modelJob) {
	skip, n := w.step%7, 1+w.step%5
	until := w.compareSeats()
	waiting = slices.DeleteFunc(slices.Clone(waiting), func(j *modelJob) bool { return w.m.barred[j.Tenant] })
	got := must(w.Window(w.ctx, queue.Wanted{}, skip, n))
	if !time.Now().Before(until) {
		return // a tenant that was left out may have been let in again before that look
	}
	part := w.inTurn(waiting)[min(skip, len(waiting)):min(skip+n, len(waiting))]
	ready := slices.DeleteFunc(slices.Clone(part), func(j *modelJob) bool { return j.paused })
	require.Equal(w.t, lookModel(ready), lookAll(got.Jobs))
	require.Equal(w.t, len(ready) < len(part) || len(w.m.barred) > 0, got.Next > 0)
	require.Equal(w.t, len(waiting) >= skip+n, got.More)
	w.compareOwn(waiting, skip, n, until)
}

// compareHistoryShares compares the counts of each tenant's history with the
// entries that exist.
func (w *walk) compareHistoryShares() {
	t := w.t
	entries, bytes := map[string]float64{}, map[string]float64{}
	for _, key := range w.m.history {
		size := must(w.db.Client().HGet(w.ctx, w.db.Key("q", "job", key), "size").Float64())
		tenant := w.m.jobs[key].Tenant
		entries[tenant]++
		bytes[tenant] += size
	}
	for name, want := range map[string]map[string]float64{"entries": entries, "bytes": bytes} {
		shares := must(w.db.Client().ZRangeWithScores(w.ctx, w.db.Key("q", "shares", name), 0, -1).Result())
		got := map[string]float64{}
		for _, z := range shares {
			got[z.Member.(string)] = z.Score
		}
		require.Equal(t, want, got, name)
	}
}

func envInt(name string, otherwise int64) int64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	return must(strconv.ParseInt(text, 10, 64))
}

// walkRandomly takes the given number of steps, unless COMFYHUB_STEPS says otherwise, and compares
// after every few.
func walkRandomly(t *testing.T, db *redis.DB, steps int64, every int) {
	seed := envInt("COMFYHUB_SEED", 1)
	w := &walk{
		bench: on(t, db, queue.Options{Lease: time.Hour, MaxAttempts: modelAttempts}),
		ctx:   t.Context(),
		rand:  rand.New(rand.NewPCG(uint64(seed), 1)),
		m:     newModel(),
	}
	w.SetLimits(queue.Limits{
		MaxAttempts: modelAttempts, TenantRuns: func(tenant string) (int, time.Duration) { return modelSeats[tenant], 0 },
	})
	defer func() {
		if t.Failed() {
			t.Logf("the last steps:\n%s", strings.Join(w.journal[max(0, len(w.journal)-30):], "\n"))
		}
	}()
	// The model takes the jobs' times from the queue. It knows everything else itself.
	kinds := []func(){
		w.enqueue, w.enqueue, w.enqueue, w.enqueue, w.claim, w.claim, w.claim, w.claim, w.claim, w.claim,
		w.started, w.started, w.started, w.started, w.started, w.release,
		w.finish, w.finish, w.requeue, w.requeue, w.cancel, w.cancelWaiting, w.takeBack, w.failWaiting, w.steer, w.adopt, w.lapse, w.lapse,
		w.sweep, w.renew, w.deleteHistory, w.delivered,
	}
	count := int(envInt("COMFYHUB_STEPS", steps))
	for w.step = range count {
		kinds[w.rand.IntN(len(kinds))]()
		if w.step%every == 0 {
			w.compare()
		}
	}
	w.compare()
	w.deliverAll()
	t.Logf("%d jobs waited at an instance", w.behind)
	require.True(t, w.behind > 0 || seed != 1 || count < 1000)
}

func TestModel(t *testing.T) {
	redistest.Both(t, func(t *testing.T, db *redis.DB) { walkRandomly(t, db, 1200, 6) })
}

// Many replies of all kinds are lost on the way. No transition happens twice or not at all, so
// nothing differs from the model.
func TestModelWithLostReplies(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, addr string) {
		var packets, lost atomic.Int64
		proxy := redistest.NewProxy(t, addr, func() bool {
			// Not as often as a client tries again. That would be a different fault, which callers
			// see.
			n := packets.Add(1)
			if n-lost.Load() < 20 || rand.IntN(5) > 0 {
				return false
			}
			lost.Store(n)
			return true
		})
		db := redistest.Open(t, proxy.URL())
		walkRandomly(t, db, 400, 10) // each waits for what was lost
		require.Positive(t, proxy.Lost())
		t.Logf("%d replies lost", proxy.Lost())
	}
	t.Run("miniredis", func(t *testing.T) { t.Parallel(); test(t, miniredis.RunT(t).Addr()) })
	t.Run("server", func(t *testing.T) { t.Parallel(); test(t, redistest.Start(t).Addr()) })
}
