package queue_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Whether a look finds the wanted jobs among many others by reading the line or the lists of each
// class, it finds the same ones. Each tenant's come in rank order.
func TestWindowOfManyMixedClasses(t *testing.T) {
	eachOf(t, queue.Options{}, orders, func(t *testing.T, b *bench, fifo bool) {
		b.SetLimits(queue.Limits{FIFO: fifo})
		random := rand.New(rand.NewPCG(uint64(envInt("COMFYHUB_SEED", 1)), 2))
		const classes = 30
		tenants := []string{"a", "b", "c"}
		for n := range 250 {
			tenant := tenants[random.IntN(3)*random.IntN(2)] // a has more than the others
			b.enqueue(fmt.Sprint(n), from(tenant, tenant), func(s *queue.Submission) {
				// Jobs of a class come more or less together, so whole parts of the line are
				// unwanted.
				s.Class = fmt.Sprint("class", (n/8+random.IntN(6))%classes)
				s.Priority = random.IntN(3)
				s.Band = []job.Band{job.Normal, job.Normal, job.Interactive, job.Bulk}[random.IntN(4)]
			})
		}
		for range 20 {
			b.next(time.Duration(random.IntN(30)) * time.Second)
		}
		all := must(b.Live(t.Context(), ""))
		all = slices.DeleteFunc(all, func(j job.Job) bool { return j.State != job.Queued })
		require.Len(t, all, 230)
		for range 30 {
			var wanted queue.Wanted
			first, share := random.IntN(classes), random.IntN(classes)
			for n := range share {
				wanted.But = append(wanted.But, fmt.Sprint("class", (first+n)%classes))
			}
			if random.IntN(2) == 0 && share > 2 {
				wanted.Own = []queue.Own{{Tenants: []string{"b"}, Classes: wanted.But[share/2:]}}
			}
			skip, n := random.IntN(3)*random.IntN(40), 1+random.IntN(60)
			got := must(b.Window(t.Context(), wanted, skip, n))
			// If all tenants are named, only the lists of the classes are read.
			wanted.Reserved, wanted.Own = true, append(wanted.Own, queue.Own{Tenants: tenants})
			same := must(b.Window(t.Context(), wanted, skip, n))
			require.Equal(t, ids(same.Jobs), ids(got.Jobs))
			require.Equal(t, same.More, got.More)
			due := slices.DeleteFunc(slices.Clone(all), func(j job.Job) bool {
				mine := len(wanted.Own) > 1 && j.Tenant == "b" && slices.Contains(wanted.Own[0].Classes, j.Class)
				return slices.Contains(wanted.But, j.Class) && !mine
			})
			compareLanes(t, due, got.Jobs, skip, n, fifo)
		}
	})
}

// compareLanes checks that a part of the wanted jobs, which are given in rank order, has those of
// each tenant and band in this order and without gaps.
func compareLanes(t *testing.T, due, got []job.Job, skip, n int, fifo bool) {
	require.Len(t, got, max(min(len(due)-skip, n), 0))
	lane := func(j job.Job) string { return j.Tenant + j.Band().Mark() }
	if fifo {
		lane = func(job.Job) string { return "" }
	}
	lanes := map[string][]string{}
	for _, j := range due {
		lanes[lane(j)] = append(lanes[lane(j)], j.ID)
	}
	parts := map[string][]string{}
	for _, j := range got {
		parts[lane(j)] = append(parts[lane(j)], j.ID)
	}
	for lane, part := range parts {
		at := slices.Index(lanes[lane], part[0])
		require.GreaterOrEqual(t, at, 0, "an unwanted job")
		if skip == 0 {
			require.Zero(t, at, "the first one is missing")
		}
		require.Equal(t, lanes[lane][at:at+len(part)], part)
	}
}

// calls returns how often a Redis has executed certain commands, or any if none is named.
func calls(t *testing.T, db *redis.DB, commands ...string) (calls int) {
	text := must(db.Client().Info(t.Context(), "commandstats").Result())
	for line := range strings.Lines(text) {
		name, stat, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if len(commands) > 0 && !slices.Contains(commands, name) {
			continue
		}
		count, _, _ := strings.Cut(stat, ",")
		n, _ := strconv.Atoi(count)
		calls += n
	}
	return calls
}

// A look reads about as much as it returns, however many jobs of however many classes are waiting:
// whether all are wanted, half of them, or those of one class behind all others.
func TestWindowReadsWhatItReturns(t *testing.T) {
	t.Parallel()
	db := redistest.Open(t, redistest.Start(t).URL())
	b := on(t, db, queue.Options{})
	const jobs, tenants, n = 1500, 3, 10
	for j := range jobs {
		tenant := fmt.Sprint("t", j%tenants)
		b.enqueue(uuid.NewString(), from(tenant, tenant), func(s *queue.Submission) { s.Class = fmt.Sprint(j % 100) })
	}
	var half, most []string
	for c := range 99 {
		most = append(most, strconv.Itoa(c))
		if c%2 == 0 {
			half = append(half, strconv.Itoa(c))
		}
	}
	for _, fifo := range []bool{false, true} {
		b.SetLimits(queue.Limits{FIFO: fifo})
		for name, c := range map[string]struct {
			but   []string
			bound int
		}{
			"all": {nil, 3*n + 20}, "half": {half, 5*n + 20}, "one class": {most, 3*n + 200},
		} {
			must(b.Window(t.Context(), queue.Wanted{But: c.but}, 0, 1))
			before := calls(t, db)
			require.Len(t, must(b.Window(t.Context(), queue.Wanted{But: c.but}, 0, n)).Jobs, n)
			require.LessOrEqual(t, calls(t, db)-before, c.bound, "%s, fifo %v", name, fifo)
			t.Logf("%s, fifo %v: %d commands", name, fifo, calls(t, db)-before)
		}
	}
}

// All jobs of some classes are wanted, and of other classes those of some tenants.
func TestWindowOfSomeTenants(t *testing.T) {
	own := func(tenants, classes string) queue.Own {
		return queue.Own{Tenants: strings.Fields(tenants), Classes: strings.Fields(classes)}
	}
	wanted := func(but string, own ...queue.Own) queue.Wanted {
		return queue.Wanted{But: strings.Fields(but), Own: own}
	}
	reserved := func(but string, own ...queue.Own) queue.Wanted {
		return queue.Wanted{Reserved: true, But: strings.Fields(but), Own: own}
	}
	cases := map[string]struct {
		wanted queue.Wanted
		want   string
	}{
		"all":                            {wanted(""), "ax bx cx ay by cy"},
		"nothing":                        {wanted("x y"), ""},
		"nobody's":                       {reserved(""), ""},
		"all of a class":                 {wanted("y"), "ax bx cx"},
		"one tenant's":                   {reserved("x y", own("b", "x y")), "bx by"},
		"one tenant's, all classes":      {reserved("", own("b", "")), "bx by"},
		"one tenant's, not all classes":  {reserved("x", own("b", "")), "by"},
		"two tenants'":                   {reserved("x", own("c a", "y")), "ay cy"},
		"groups that share tenants":      {reserved("x y", own("a", "x"), own("a b", "y")), "ax by ay"},
		"beside classes of all":          {wanted("y", own("b", "y")), "ax bx cx by"},
		"named once":                     {wanted("", own("b", "y")), "ax bx cx by"},
		"a tenant without jobs":          {reserved("y", own("nobody", "x")), ""},
		"a class without jobs":           {reserved("x y", own("a", "none")), ""},
		"a group without classes":        {reserved("x y", own("a", "")), ""},
		"classes without any of its own": {wanted("x y", own("a", "x")), "ax"},
	}
	eachOf(t, queue.Options{}, orders, func(t *testing.T, b *bench, fifo bool) {
		b.SetLimits(queue.Limits{FIFO: fifo})
		for _, class := range []string{"x", "y"} {
			for _, tenant := range []string{"a", "b", "c"} {
				b.enqueue(tenant+class, from(tenant, tenant), func(s *queue.Submission) { s.Class = class })
			}
		}
		for name, c := range cases {
			w, err := b.Window(t.Context(), c.wanted, 0, 10)
			require.NoError(t, err, name)
			require.ElementsMatch(t, strings.Fields(c.want), ids(w.Jobs), name)
			if !fifo {
				require.Equal(t, c.want, strings.Join(ids(w.Jobs), " "), name)
			}
			for skip := range w.Jobs {
				part, err := b.Window(t.Context(), c.wanted, skip, 1)
				require.NoError(t, err, name)
				require.Equal(t, ids(w.Jobs[skip:skip+1]), ids(part.Jobs), name)
				require.True(t, part.More, name)
			}
		}
	})
}

// A look reads the tenants that are due rather than all of them, even if all are equal, and one for a
// tenant's jobs reads no others.
func TestWindowReadsFewTenants(t *testing.T) {
	t.Parallel()
	db := redistest.Open(t, redistest.Start(t).URL())
	b := on(t, db, queue.Options{})
	for n := range 200 {
		b.enqueue(fmt.Sprint(n), from(fmt.Sprint("t", n), "c"))
	}
	b.enqueue("mine", from("ada", "c"))
	reads := func() int { return calls(t, db, "smembers", "scard", "zrange", "zscore") }
	for _, c := range []struct {
		wanted      queue.Wanted
		found, most int
	}{
		{queue.Wanted{}, 10, 24},
		{queue.Wanted{Reserved: true, Own: []queue.Own{{Tenants: []string{"ada"}, Classes: []string{"class"}}}}, 1, 12},
	} {
		must(b.Window(t.Context(), c.wanted, 0, 1))
		before := reads()
		require.NotZero(t, before)
		require.Len(t, must(b.Window(t.Context(), c.wanted, 0, 10)).Jobs, c.found)
		require.LessOrEqual(t, reads()-before, c.most)
	}
}

// compareOwn compares what is waiting for an instance that anybody may use, beside one that only
// one tenant may use, with the model. until is what compareSeats returned.
func (w *walk) compareOwn(waiting []*modelJob, skip, n int, until time.Time) {
	mine := func(j *modelJob) bool { return j.Class == "class0" || j.Class == "class1" && j.Tenant == "t1" }
	wanted := queue.Wanted{But: []string{"class2"}, Own: []queue.Own{{Tenants: []string{"t1"}, Classes: []string{"class1"}}}}
	if w.step%2 == 0 { // all idle instances are reserved
		mine = func(j *modelJob) bool { return j.Class == "class1" && j.Tenant == "t1" }
		wanted = queue.Wanted{Reserved: true, But: []string{"class0", "class2"}, Own: []queue.Own{{Tenants: []string{"t1"}, Classes: []string{"class1"}}}}
	}
	waiting = slices.DeleteFunc(slices.Clone(waiting), func(j *modelJob) bool { return !mine(j) })
	got := must(w.Window(w.ctx, wanted, skip, n))
	if !time.Now().Before(until) {
		return
	}
	part := w.inTurn(waiting)[min(skip, len(waiting)):min(skip+n, len(waiting))]
	ready := slices.DeleteFunc(slices.Clone(part), func(j *modelJob) bool { return j.paused })
	require.Equal(w.t, lookModel(ready), lookAll(got.Jobs))
	require.Equal(w.t, len(waiting) >= skip+n, got.More)
	require.NotContains(w.t, states(got.Jobs), job.Leased)
}

func states(jobs []job.Job) (states []job.State) {
	for _, j := range jobs {
		states = append(states, j.State)
	}
	return states
}
