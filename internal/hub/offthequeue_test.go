package hub

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// However a prompt ends, it is off the queue and in the history when its client is told:
// at the hub that has run it, and at the other one.
func TestOffTheQueueBeforeTheEndIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		graph string
		stop  func(b *bench, id string)
		want  string
	}{
		"success": {work(1, 7, "none"), nil, "execution_success"},
		"error":   {work(1, 7, "error"), nil, "execution_error"},
		"interrupted": {endless(1), func(b *bench, id string) {
			eventually(b.t, func() bool { return started(b) == 1 }, time.Minute, time.Millisecond)
			status, _ := b.post("/interrupt", fmt.Sprintf(`{"prompt_id": %q}`, id))
			require.Equal(b.t, http.StatusOK, status)
		}, "execution_interrupted"},
		"the server died": {endless(1), func(b *bench, _ string) {
			for n := range 3 {
				eventually(b.t, func() bool { return started(b) == n+1 }, time.Minute, time.Millisecond)
				b.instances[0].die()
				b.instances[0].revive()
			}
		}, "execution_error"},
	} {
		for _, away := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/away=%v", name, away), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					one, two := newPair(t, 1, 0)
					at := one
					if away {
						at = two
					}
					socket := at.dial("ann")
					id := at.submit(c.graph, "ann")
					if c.stop != nil {
						c.stop(one, id)
					}
					ends := []string{"execution_success", "execution_error", "execution_interrupted"}
					for {
						m := socket.next()
						if !slices.Contains(ends, m.Type) {
							continue
						}
						require.Equal(t, c.want, m.Type)
						for _, b := range []*bench{one, two} {
							resp, err := http.Get(b.web.URL + "/queue")
							require.NoError(t, err)
							_, body := read(t, resp)
							require.NotContains(t, string(body), id, "it stands in the queue")
							_, found := b.history(id)
							require.True(t, found)
						}
						return
					}
				})
			})
		}
	}
}
