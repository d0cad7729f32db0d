package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// searched puts all parts of a search together.
func (b *bench) searched(f job.Filter, limit int) (found []string) {
	cursor := ""
	for range 100 {
		part := must(b.Search(context.Background(), f, cursor, limit, f.Has))
		require.LessOrEqual(b.t, len(part.Jobs), limit)
		require.LessOrEqual(b.t, part.Looked, queue.MaxSearched)
		found = append(found, ids(part.Jobs)...)
		if cursor = part.Next; cursor == "" {
			return found
		}
	}
	require.Fail(b.t, "the search does not end")
	return nil
}

// Whatever the size of the parts, a search finds each job once, those of other tenants only where
// nobody's in particular are asked for.
func TestSearch(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		for n := range 3 {
			run := b.claim(b.enqueue(fmt.Sprint("failed-", n), of("ann")), "gpu").Run
			require.NoError(t, b.Finish(ctx, run, queue.Outcome{State: job.Failed, Entry: []byte("{}"), Reason: fmt.Sprint("no model ", n)}))
		}
		run := b.claim(b.enqueue("done", of("bob")), "gpu").Run
		require.NoError(t, b.Finish(ctx, run, done("{}")))
		b.enqueue("waiting", of("ann"))
		b.enqueue("bobs", of("bob"))
		yes := true
		must(b.Steer(ctx, b.enqueue("paused", of("bob")).Key, queue.Steering{Paused: &yes}))
		running := b.claim(b.enqueue("running", of("ann")), "other gpu")
		taken := b.claim(b.enqueue("taken back", of("ann")), "third gpu")
		must(b.Withdraw(ctx, taken.Key, false))
		for name, c := range map[string]struct {
			f    job.Filter
			want []string
		}{
			"all":         {job.Filter{}, []string{"bobs", "paused", "waiting", "running", "done", "failed-2", "failed-1", "failed-0"}},
			"a tenant's":  {job.Filter{Tenant: "ann"}, []string{"waiting", "running", "failed-2", "failed-1", "failed-0"}},
			"another's":   {job.Filter{Tenant: "bob"}, []string{"bobs", "paused", "done"}},
			"nobody's":    {job.Filter{Tenant: "an"}, nil},
			"running":     {job.Filter{States: []job.State{job.Running}}, []string{"running"}},
			"ended":       {job.Filter{States: []job.State{job.Failed, job.Done}}, []string{"done", "failed-2", "failed-1", "failed-0"}},
			"an error":    {job.Filter{Error: "Model 1"}, []string{"failed-1"}},
			"an instance": {job.Filter{Instance: "other gpu"}, []string{"running"}},
			"a key":       {job.Filter{Text: running.Key}, []string{"running"}},
		} {
			for _, limit := range []int{1, 2, 3, 100} {
				require.Equal(t, c.want, b.searched(c.f, limit), "%s, %d at once", name, limit)
			}
		}
		for _, cursor := range []string{"x", "l:", "e:", "e:x", "e:1.5", strings.Repeat("l", 1000)} {
			require.ErrorIs(t, errOf(b.Search(ctx, job.Filter{}, cursor, 10, job.Filter{}.Has)), queue.ErrCursor, cursor)
		}
	})
}

// A search that finds nothing stops all the same, and goes on where it stopped.
func TestSearchIsBounded(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		b.enqueue("last")
		b.lua(fmt.Sprintf("for n = 1, %d do write('ZADD', key('q', 'live'), '0', '0:' .. int(n) .. ':gone') end", queue.MaxSearched), "")
		var all job.Filter
		found := must(b.Search(t.Context(), all, "", 10, all.Has))
		require.Equal(t, queue.MaxSearched, found.Looked)
		require.Empty(t, found.Jobs)
		found = must(b.Search(t.Context(), all, found.Next, 10, all.Has))
		require.Equal(t, []string{"last"}, ids(found.Jobs))
		require.Equal(t, 1, found.Looked)
		require.Empty(t, found.Next)
	})
}

// Whoever's a job is and whatever has become of it, its id finds it.
func TestFindAnywhere(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		tenants := func(id string) (names []string) {
			for _, j := range must(b.FindAnywhere(ctx, id)) {
				require.Equal(t, id, j.ID)
				names = append(names, j.Tenant)
			}
			return names
		}
		require.Empty(t, tenants("same"))
		b.enqueue("same", of("waiting"))
		b.enqueue("another", of("waiting"))
		yes := true
		must(b.Steer(ctx, b.enqueue("same", of("paused")).Key, queue.Steering{Paused: &yes}))
		b.claim(b.enqueue("same", of("running")), "gpu")
		run := b.claim(b.enqueue("same", of("ended")), "other gpu").Run
		require.NoError(t, b.Finish(ctx, run, done("{}")))
		require.ElementsMatch(t, []string{"waiting", "paused", "running", "ended"}, tenants("same"))
		require.Equal(t, []string{"waiting"}, tenants("another"))
	})
}

// A key finds a job as its id does, but none of another tenant, and no part of another job.
func TestFindOrGet(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		older := b.enqueue("same", of("ann"))
		b.claim(older, "gpu")
		newer := b.enqueue("same", of("ann"), func(s *queue.Submission) { s.BodyHash = "another" })
		bobs := b.enqueue("same", of("bob"))
		b.claim(bobs, "other gpu")
		for _, c := range []struct{ tenant, asked, want string }{
			{"ann", "same", newer.Key},
			{"ann", older.Key, older.Key},
			{"ann", newer.Key, newer.Key},
			{"ann", bobs.Key, ""},
			{"bob", "same", bobs.Key},
			{"", older.Key, older.Key},
			{"", bobs.Key, bobs.Key},
			{"", "same", ""},
			{"ann", "x", ""},
		} {
			j, err := b.FindOrGet(ctx, c.tenant, c.asked)
			require.Equal(t, c.want, j.Key, "%+v", c)
			require.Equal(t, c.want == "", errors.Is(err, queue.ErrNotFound), "%+v", c)
		}
		must(b.Withdraw(ctx, bobs.Key, false))
		require.ErrorIs(t, errOf(b.FindOrGet(ctx, "bob", bobs.Key)), queue.ErrNotFound, "it was taken back")
	})
}

// Pages put together are the whole listing, whatever their size.
func TestPages(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		var jobs []job.Job
		for n := range 6 {
			jobs = append(jobs, b.enqueue(fmt.Sprint("normal-", n)))
		}
		b.enqueue("bulk", inBand(job.Bulk))
		b.enqueue("now", inBand(job.Interactive))
		run := b.claim(jobs[1], "gpu").Run
		b.claim(jobs[4], "other gpu")
		yes := true
		must(b.Steer(ctx, jobs[2].Key, queue.Steering{Paused: &yes}))
		for _, tenant := range []string{"tenant", ""} {
			all := must(b.Live(ctx, tenant))
			require.Len(t, all, 8)
			for size := 1; size <= 9; size++ {
				var paged, waiting []job.Job
				for from := 0; from < 9; from += size {
					paged = append(paged, must(b.LivePage(ctx, tenant, from, size))...)
					more := must(b.WaitingPage(ctx, tenant, from, size))
					require.LessOrEqual(t, len(more), size)
					waiting = append(waiting, more...)
				}
				require.Equal(t, all, paged, "pages of %d", size)
				require.Equal(t, []string{"now", "normal-0", "normal-3", "normal-5", "bulk"}, ids(waiting), "pages of %d", size)
			}
			require.Equal(t, []string{"normal-1", "normal-4"}, ids(must(b.Held(ctx, tenant))))
		}
		for _, what := range []func() (int, error){
			func() (int, error) { jobs, err := b.LivePage(ctx, "other", 0, 10); return len(jobs), err },
			func() (int, error) { jobs, err := b.WaitingPage(ctx, "other", 0, 10); return len(jobs), err },
			func() (int, error) { jobs, err := b.Held(ctx, "other"); return len(jobs), err },
		} {
			require.Zero(t, must(what()), "of another tenant")
		}
		before := must(b.Ends(ctx))
		require.NoError(t, b.Finish(ctx, run, done("{}")))
		require.Equal(t, before+1, must(b.Ends(ctx)))
	})
}
