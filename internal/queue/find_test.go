package queue_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/queue"
)

// Whoever's a job is and whatever has become of it, its id finds it.
func TestFindAnywhere(t *testing.T) {
	each(t, queue.Options{}, func(t *testing.T, b *bench) {
		ctx := t.Context()
		of := func(tenant string) func(*queue.Submission) {
			return func(s *queue.Submission) { s.Requester.Tenant = tenant }
		}
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
		of := func(tenant string) func(*queue.Submission) {
			return func(s *queue.Submission) { s.Requester.Tenant = tenant }
		}
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
		_, err := b.FindOrGet(ctx, "bob", bobs.Key)
		require.ErrorIs(t, err, queue.ErrNotFound, "it was taken back")
	})
}
