package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// A tenant learns which of its own jobs are before another one, and of others' only how
// many.
func TestAhead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		of := func(tenant, id string) job.Job {
			return job.Job{Key: "key of " + id, ID: id, Requester: job.Requester{Tenant: tenant}}
		}
		o := &Outlook{order: []job.Job{of("a", "a1"), of("b", "b1"), of("a", "a2"), of("b", "b2")}}
		for _, c := range []struct {
			job  job.Job
			want Ahead
			ok   bool
		}{
			{of("a", "a1"), Ahead{}, true},
			{of("b", "b1"), Ahead{Others: 1}, true},
			{of("a", "a2"), Ahead{Own: []string{"a1"}, Others: 1}, true},
			{of("b", "b2"), Ahead{Own: []string{"b1"}, Others: 2}, true},
			{of("a", "behind the line"), Ahead{}, false},
		} {
			got, ok := o.Ahead(c.job)
			require.Equal(t, c.want, got, c.job.ID)
			require.Equal(t, c.ok, ok, c.job.ID)
		}
	})
}

// When an instance is free is told only if it is known how long its runs take.
func TestFree(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 2)
		b.connects(2)
		key := b.submit(endless, withShape(shapeOf(t, b, endless)))
		b.runs(key)
		busy := b.at(key).name
		free := func() time.Duration {
			return b.Outlook(t.Context(), job.Job{State: job.Queued, Class: "class"}).Free(busy)
		}
		require.Equal(t, time.Duration(-1), free())
		b.learn(endless, time.Hour)
		require.InDelta(t, time.Hour, free(), float64(time.Minute))
		for _, i := range b.instances {
			if i.name != busy {
				require.Zero(t, b.Outlook(t.Context(), job.Job{State: job.Queued, Class: "class"}).Free(i.name))
			}
		}
		require.Equal(t, time.Duration(-1), b.Outlook(t.Context(), job.Job{}).Free("nobody"))
		b.CancelRun(key)
		b.reaches(key, job.Cancelled)
	})
}
