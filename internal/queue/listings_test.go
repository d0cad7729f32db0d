package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// A reading is shared by those who asked before it began, and by nobody who asked later: anything
// accepted before a request is in its answer.
func TestReadingsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l listings
		var begun atomic.Int64
		proceed := make(chan struct{})
		read := func(context.Context, []*job.Job) ([]*job.Job, error) {
			n := begun.Add(1)
			<-proceed
			return []*job.Job{{ID: fmt.Sprint(n)}}, nil
		}
		results := make(chan string, 10)
		ask := func(ctx context.Context) {
			go func() {
				jobs, err := l.read(ctx, "t", read)
				if err != nil {
					results <- err.Error()
					return
				}
				results <- jobs[0].ID
			}()
			synctest.Wait()
		}
		ask(t.Context())
		gone, leave := context.WithCancel(t.Context())
		ask(gone) // starts the second reading, and does not wait for it
		ask(t.Context())
		ask(t.Context())
		require.EqualValues(t, 1, begun.Load())
		leave()
		require.Equal(t, context.Canceled.Error(), <-results)
		proceed <- struct{}{}
		require.Equal(t, "1", <-results)
		synctest.Wait()
		ask(t.Context())
		proceed <- struct{}{}
		require.Equal(t, []string{"2", "2"}, []string{<-results, <-results})
		synctest.Wait()
		proceed <- struct{}{}
		require.Equal(t, "3", <-results)
		synctest.Wait()
		require.EqualValues(t, 3, begun.Load())
	})
}

// What is kept about a tenant goes when nobody lists its jobs any more, and the total is bounded: a
// tenant with many jobs pushes out those of others, but not its own.
func TestListingsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l listings
		list := func(tenant string, n int) (kept int) {
			_, err := l.read(t.Context(), tenant, func(_ context.Context, k []*job.Job) ([]*job.Job, error) {
				kept = len(k)
				jobs := make([]*job.Job, n)
				for i := range jobs {
					jobs[i] = &job.Job{State: job.Queued, ID: strings.Repeat("x", 1<<20)}
				}
				return jobs, nil
			})
			require.NoError(t, err)
			synctest.Wait()
			require.LessOrEqual(t, l.size, int64(maxListed))
			return kept
		}
		list("a", 2)
		list("b", 3)
		require.Equal(t, 2, list("a", 2))
		list("big", 100)
		require.Equal(t, 31, list("big", 100))
		require.Zero(t, list("a", 2), "it was listed longest ago")
		time.Sleep(2 * listedFor)
		list("c", 1)
		require.Len(t, l.tenants, 1)
		require.Positive(t, l.size)
		time.Sleep(2 * listedFor)
		_, err := l.read(t.Context(), "none", func(context.Context, []*job.Job) ([]*job.Job, error) { return nil, errors.New("away") })
		require.EqualError(t, err, "away")
		synctest.Wait()
		require.Zero(t, l.size)
	})
}

// Only parts of a job that cannot change while it waits are kept.
func TestListingsKeepWhatDoesNotChange(t *testing.T) {
	t.Parallel()
	var l listings
	var kept []*job.Job
	for range 2 {
		_, err := l.read(t.Context(), "t", func(_ context.Context, k []*job.Job) ([]*job.Job, error) {
			kept = k
			return []*job.Job{
				{State: job.Queued, ID: "waits"},
				{State: job.Queued, Paused: true},
				{State: job.Queued, Fence: 1},
				{State: job.Queued, DoorUntil: 1},
				{State: job.Leased, Fence: 1},
				{State: job.Running, Fence: 1},
			}, nil
		})
		require.NoError(t, err)
	}
	require.Len(t, kept, 1)
	require.Equal(t, "waits", kept[0].ID)
}

func TestKeptRequirementsAreBounded(t *testing.T) {
	t.Parallel()
	var r requirements
	r.keep("small", []byte("needs"))
	known, unknown := r.of([]string{"small", "other"})
	require.Equal(t, map[string][]byte{"small": []byte("needs")}, known)
	require.Equal(t, []string{"other"}, unknown)
	for n := range 20 {
		r.keep("class"+strconv.Itoa(n), make([]byte, keptRequirements/10))
		require.LessOrEqual(t, r.bytes, keptRequirements)
	}
	r.keep("too large", make([]byte, keptRequirements))
	known, unknown = r.of([]string{"class19", "too large"})
	require.Len(t, known, 1, "the last one that fits")
	require.Equal(t, []string{"too large"}, unknown)
}

// A job may be claimed before the call that accepted it stores its copy. The copy of the claim
// stays: restored from the other one, the job would run twice.
func TestCopyOfAClaimIsNotReplaced(t *testing.T) {
	t.Parallel()
	c := newCopies()
	c.change("key", record{"state": "leased", "fence": "1"}, func(j *copied) { j.held = true })
	c.change("key", record{"state": "queued", "fence": "0"}, func(j *copied) { j.stored = []byte("body") })
	kept, ok := c.get("key")
	require.True(t, ok)
	require.Equal(t, record{"state": "leased", "fence": "1"}, kept.record)
	require.True(t, kept.held)
	require.Equal(t, "body", string(kept.stored), "what only the other call knows is kept")
	c.change("key", record{"state": "queued", "fence": "2"}, func(j *copied) { j.held = false })
	kept, _ = c.get("key")
	require.Equal(t, "queued", kept.record["state"], "a run that was given back")
}
