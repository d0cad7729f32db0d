package queue_test

import (
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
