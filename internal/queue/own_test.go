package queue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Of some classes, all jobs are wanted; of others, those of some tenants.
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

// However many others wait, a look for one tenant's jobs reads no others.
func TestWindowReadsNoOtherTenants(t *testing.T) {
	t.Parallel()
	db := redistest.Open(t, redistest.Start(t).URL())
	b := on(t, db, queue.Options{})
	for n := range 200 {
		b.enqueue(fmt.Sprint(n), from(fmt.Sprint("t", n), "c"))
	}
	b.enqueue("mine", from("ada", "c"))
	reads := func() int { return calls(t, db, "smembers", "scard", "zrange", "zscore") }
	wanted := queue.Wanted{Reserved: true, Own: []queue.Own{{Tenants: []string{"ada"}, Classes: []string{"class"}}}}
	must(b.Window(t.Context(), wanted, 0, 1))
	before := reads()
	require.Equal(t, []string{"mine"}, ids(must(b.Window(t.Context(), wanted, 0, 10)).Jobs))
	require.LessOrEqual(t, reads()-before, 12)
}

// compareOwn compares what waits for an instance that anybody may use, beside one that
// only one tenant may, with the model. until is what compareSeats has returned.
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
