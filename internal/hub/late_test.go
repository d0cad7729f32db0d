package hub

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A client posts first and opens its socket long after the prompt has ended. It
// still gets all messages. The hub here is older than the replay window, so only
// the POST itself makes it keep the messages.
func TestSocketAfterTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 2, func(b *bench) { b.settings.ReplayWindow = 10 * time.Second })
		eventually(t, func() bool { return time.Since(b.hub.since) > b.settings.ReplayWindow }, time.Minute, 50*time.Millisecond)
		var wait sync.WaitGroup
		for n := range 16 {
			wait.Go(func() {
				name := fmt.Sprint("late", n)
				id := b.submit(picture(n), name)
				b.finished(id)
				types := b.dial(name).until(id)
				require.Equal(t, []string{"execution_start", "execution_cached"}, types[:2])
				require.Contains(t, types, "executed")
				require.Equal(t, "execution_success", types[len(types)-2])
			})
		}
		wait.Wait()
	})
}
