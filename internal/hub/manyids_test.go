package hub

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// However many ids a client deletes, the hub asks Redis a few times, and the sockets of
// others ask nothing.
func TestManyIdsAreFewRoundTrips(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) { b.id.Redis = redisInMemory(t) })
		running := b.submit(endless(1), "ann")
		eventually(t, func() bool { return started(b) == 1 }, time.Minute, time.Millisecond)
		var ids []string
		for n := range 40 {
			ids = append(ids, b.submit(picture(n), "ann"))
		}
		for n := range 30 {
			b.dial(fmt.Sprint("other", n))
		}
		for n := range 1000 {
			ids = append(ids, fmt.Sprintf("unknown%d", n))
		}
		order, err := json.Marshal(map[string]any{"delete": ids})
		require.NoError(t, err)
		synctest.Wait() // the sockets have arrived
		counted := newTrips()
		b.hub.db.Client().AddHook(counted)
		var unknown []string
		for range 500 {
			unknown = append(unknown, uuid.NewString())
		}
		cancel, err := json.Marshal(map[string]any{"job_ids": unknown})
		require.NoError(t, err)
		before, _ := counted.total()
		code, answer := b.post("/api/jobs/cancel", string(cancel))
		require.Equal(t, 200, code, string(answer))
		after, _ := counted.total()
		require.LessOrEqual(t, after-before, 10, "cancel:%s", counted.table(1))
		for path, most := range map[string]int{"/history": 12, "/queue": 30} {
			before, _ := counted.total()
			code, answer := b.post(path, string(order))
			require.Equal(t, 200, code, string(answer))
			if path == "/queue" {
				eventually(t, func() bool {
					live, err := b.hub.Jobs().Live(t.Context(), job.DefaultTenant)
					return err == nil && len(live) == 1 && live[0].ID == running
				}, time.Minute, time.Millisecond)
			}
			after, _ := counted.total()
			require.LessOrEqual(t, after-before, most, "%s:%s", path, counted.table(1))
		}
	})
}
