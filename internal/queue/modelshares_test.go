package queue_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// marks are the marks of the bands, the highest first.
var marks = []string{job.Interactive.Mark(), job.Normal.Mark(), job.Bulk.Mark()}

// turns are the places of the callers of each tenant in a band.
type turns struct {
	now  map[string]float64            // lane -> place of what was given out last
	last map[string]map[string]float64 // lane -> caller -> place of its last job
}

// passOver notes that a job was given out: lower bands with waiting jobs were passed over.
func (m *model) passOver(given *modelJob) {
	band := slices.Index(marks, given.Band().Mark())
	m.passed[band] = 0
	for lower := band + 1; lower < len(marks); lower++ {
		if len(m.live(func(j *modelJob) bool { return j.State == job.Queued && !j.stopped && j.Band().Mark() == marks[lower] })) > 0 {
			m.passed[lower]++
		}
	}
}

func newTurns() turns { return turns{map[string]float64{}, map[string]map[string]float64{}} }

// place returns where a caller's next job goes.
func (u turns) place(tenant, caller string, number int) float64 {
	now, ok := u.now[tenant]
	if !ok {
		u.now[tenant], u.last[tenant] = float64(number)-0.5, map[string]float64{caller: float64(number)}
		return float64(number)
	}
	place := now + 0.5
	if last, ok := u.last[tenant][caller]; ok {
		place = max(place, last+1)
	}
	u.last[tenant][caller] = place
	return place
}

// taken notes that a job was given out.
func (u turns) taken(j *modelJob) {
	now, ok := u.now[j.lane()]
	if !j.placed || !ok || j.place <= now {
		return
	}
	u.now[j.lane()] = j.place
	maps.DeleteFunc(u.last[j.lane()], func(_ string, last float64) bool { return last <= j.place-0.5 })
}

// returned takes back the place of a job that leaves without a run.
func (u turns) returned(j *modelJob) {
	last, ok := u.last[j.lane()][j.Caller]
	if !j.placed || !ok || last != j.place {
		return
	}
	if u.last[j.lane()][j.Caller] = last - 1; last-1 <= u.now[j.lane()]-0.5 {
		delete(u.last[j.lane()], j.Caller)
	}
}

// left forgets the places of a tenant whose last job has left.
func (m *model) left(tenant string) {
	if len(m.live(func(j *modelJob) bool { return j.Tenant == tenant })) == 0 {
		for _, mark := range marks {
			delete(m.turns.now, tenant+mark)
			delete(m.turns.last, tenant+mark)
		}
	}
}

// inTurn puts waiting jobs, given in rank order, into the order in which they are due: one job of a
// lower band after every nine of higher ones.
func (w *walk) inTurn(waiting []*modelJob) []*modelJob {
	lists, passed := make([][]*modelJob, len(marks)), w.m.passed
	for n, mark := range marks {
		lists[n] = w.inBand(mark, slices.DeleteFunc(slices.Clone(waiting), func(j *modelJob) bool { return j.Band().Mark() != mark }))
	}
	out := []*modelJob{}
	for len(out) < len(waiting) {
		next := slices.IndexFunc(lists, func(l []*modelJob) bool { return len(l) > 0 })
		for n := len(marks) - 1; n > next; n-- {
			if len(lists[n]) > 0 && passed[n] >= 9 {
				next = n
			}
		}
		out, lists[next], passed[next] = append(out, lists[next][0]), lists[next][1:], 0
		for n := next + 1; n < len(marks); n++ {
			if passed[n]++; len(lists[n]) == 0 {
				passed[n] = 0
			}
		}
	}
	return out
}

// inBand is inTurn for the jobs of one band. What tenants were charged depends on the clock, so it
// is read from Redis.
func (w *walk) inBand(mark string, waiting []*modelJob) []*modelJob {
	own := map[string][]*modelJob{}
	for _, j := range waiting {
		own[j.Tenant] = append(own[j.Tenant], j)
	}
	virtual, err := w.db.Client().HGet(w.ctx, w.db.Key("q", "counters"), "virtual"+mark).Float64()
	if !errors.Is(err, redis.Nil) {
		require.NoError(w.t, err)
	}
	costs := must(w.db.Client().HGetAll(w.ctx, w.db.Key("q", "costs"+mark)).Result())
	tenants := must(w.db.Client().ZRangeWithScores(w.ctx, w.db.Key("q", "tenants"+mark), 0, -1).Result())
	for n, z := range tenants {
		tenants[n].Score = max(z.Score, virtual-120_000)
	}
	out := []*modelJob{}
	for len(own) > 0 {
		next := -1
		for n, z := range tenants {
			if len(own[z.Member.(string)]) > 0 && (next < 0 || z.Score < tenants[next].Score) {
				next = n
			}
		}
		require.GreaterOrEqual(w.t, next, 0, "a tenant has jobs and no tag")
		tenant := tenants[next].Member.(string)
		out = append(out, own[tenant][0])
		if own[tenant] = own[tenant][1:]; len(own[tenant]) == 0 {
			delete(own, tenant)
		}
		cost := 1
		if text, ok := costs[tenant]; ok {
			cost = max(must(strconv.Atoi(text)), 1)
		}
		tenants[next].Score += float64(cost)
	}
	return out
}

// compareIndex compares the index of the waiting jobs with the model.
func (w *walk) compareIndex(waiting []*modelJob) {
	t := w.t
	want, members := map[string][]string{}, map[string][]string{}
	add := func(rank string, parts ...string) {
		key := w.db.Key(append([]string{"q"}, parts...)...)
		if !slices.Contains(want[key], rank) {
			want[key] = append(want[key], rank)
		}
	}
	for _, j := range waiting {
		mark := j.Band().Mark()
		add(j.Tenant, "tenants"+mark)
		add(j.Class, "classes"+mark, j.Tenant)
		add(j.Rank, "waits"+mark, j.Tenant)
		add(j.Rank, "wait"+mark, j.Class, j.Tenant)
	}
	for n := range 2 * len(marks) {
		tenant, mark := fmt.Sprint("t", n%2), marks[n/2]
		keys := []string{w.db.Key("q", "waits"+mark, tenant)}
		for _, class := range []string{"class0", "class1", "class2"} {
			keys = append(keys, w.db.Key("q", "wait"+mark, class, tenant))
		}
		for _, key := range append(keys, w.db.Key("q", "tenants"+mark)) {
			got := must(w.db.Client().ZRange(w.ctx, key, 0, -1).Result())
			members[key] = got
		}
		key := w.db.Key("q", "classes"+mark, tenant)
		got := must(w.db.Client().SMembers(w.ctx, key).Result())
		members[key] = got
	}
	for key, got := range members {
		require.ElementsMatch(t, want[key], got, key)
	}
	indexed, err := w.db.Client().HGet(w.ctx, w.db.Key("q", "counters"), "indexed").Int()
	if !errors.Is(err, redis.Nil) {
		require.NoError(t, err)
	}
	require.Len(t, waiting, indexed)
	line := []job.Job{}
	for _, j := range w.inTurn(waiting) {
		line = append(line, must(w.Get(w.ctx, j.Key)))
	}
	for n, position := range must(w.Positions(w.ctx, line...)) {
		require.Equal(t, n, position, line[n].Key)
	}
	if j := w.anyJob(job.Running, job.Done); j != nil {
		require.Equal(t, []int{-1}, must(w.Positions(w.ctx, must(w.Get(w.ctx, j.Key)))))
	}
}

// modelSeats are how many runs each tenant may have at once.
var modelSeats = map[string]int{"t0": 3, "t1": 6}

// tenant returns the tenant of a job.
func (m *model) tenant(key string) string {
	if j := m.jobs[key]; j != nil {
		return j.Tenant
	}
	return ""
}

// seats returns the jobs whose runs count for their tenant's limit.
func (m *model) seats(tenant string) []string {
	keys := []string{}
	for _, j := range m.jobs {
		if j.Tenant == tenant && j.runs() && !j.released {
			keys = append(keys, j.Key)
		}
	}
	return keys
}

// compareSeats compares the tenants' runs with the model. It returns until when it is certain which
// tenants are left out of the window.
func (w *walk) compareSeats() (until time.Time) {
	for tenant := range modelSeats {
		got := must(w.db.Client().SMembers(w.ctx, w.db.Key("q", "seats", tenant)).Result())
		require.ElementsMatch(w.t, w.m.seats(tenant), got)
		require.Equal(w.t, queue.Usage{Running: len(got)}, must(w.Usage(w.ctx, tenant)))
	}
	until = time.Now().Add(time.Hour)
	for tenant := range w.m.barred {
		score := must(w.db.Client().ZScore(w.ctx, w.db.Key("q", "capped"), tenant).Result())
		till := time.UnixMilli(int64(score))
		if time.Now().Before(till) {
			until = earlier(until, till)
		} else {
			delete(w.m.barred, tenant) // a claim decides again
		}
	}
	return until
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
