//go:build unix

package e2e

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/stage"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// inARow tells which replies are lost: as many in a row as losing says, and then none for
// 4 to 10. A fixed pause could keep time with a loop of the bridge, which would then lose
// the same reply for ever.
func inARow(losing *atomic.Int64) func() bool {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(12, 5))
	lost, kept := int64(0), 0
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		if kept > 0 || losing.Load() == 0 {
			kept--
			return false
		}
		if lost++; lost >= losing.Load() {
			lost, kept = 0, 4+random.IntN(7)
		}
		return true
	}
}

// Redis executes commands but loses its answers, more of them in a row than are
// retried at once. Nothing is done twice because of that, and nothing is
// forgotten.
func TestRedisRepliesLost(t *testing.T) {
	t.Parallel()
	var losing atomic.Int64
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr(), inARow(&losing))
	r := newRig(t, func(o *stage.Options) { o.Env = []string{"COMFYHUB_BOT_REDIS=" + proxy.URL()} })
	losing.Store(5)
	people := make([]*fakebot.Person, 4)
	asked := make([][3]int, len(people))
	for n := range people {
		people[n] = r.Fake.Person(int64(10+n), "en")
		for i := range asked[n] {
			asked[n][i], _ = people[n].Say("/work")
		}
	}
	// Every loss costs a pause, so twelve pictures would take minutes if it went on.
	require.Eventually(t, func() bool { return proxy.Lost() >= 60 }, patience, 20*time.Millisecond)
	losing.Store(0)
	for n, p := range people {
		for _, m := range asked[n] {
			r.pictures(p, m, 1)
		}
	}
	for n, p := range people {
		for _, m := range asked[n] {
			require.Len(t, filter(p.All(), answering(m, isPicture)), 1)
		}
	}
}
