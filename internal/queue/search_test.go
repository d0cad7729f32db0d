package queue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// searched puts all parts of a search together.
func (b *bench) searched(f job.Filter, limit int) (found []string) {
	b.t.Helper()
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
		of := func(tenant string) func(*queue.Submission) {
			return func(s *queue.Submission) { s.Requester.Tenant = tenant }
		}
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
			_, err := b.Search(ctx, job.Filter{}, cursor, 10, job.Filter{}.Has)
			require.ErrorIs(t, err, queue.ErrCursor, cursor)
		}
	})
}

// A search that finds nothing stops all the same, and goes on where it stopped.
func TestSearchIsBounded(t *testing.T) {
	each(t, queue.Options{MaxQueue: 3000}, func(t *testing.T, b *bench) {
		const most = queue.MaxSearched + 300
		for n := range most {
			b.enqueue(fmt.Sprint("p", n)) // no key, which is hexadecimal, has that
		}
		last := job.Filter{Text: fmt.Sprint("p", most-1)}
		found := must(b.Search(t.Context(), last, "", 10, last.Has))
		require.Equal(t, queue.MaxSearched, found.Looked)
		require.Empty(t, found.Jobs)
		found = must(b.Search(t.Context(), last, found.Next, 10, last.Has))
		require.Equal(t, []string{last.Text}, ids(found.Jobs))
		require.Equal(t, 300, found.Looked)
		require.Empty(t, found.Next)
	})
}
