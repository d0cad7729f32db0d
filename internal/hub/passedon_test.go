package hub

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

// Whatever a prompt says beyond what ComfyUI knows is for custom nodes, whose handlers get the
// whole body. The instance gets it as it was sent, each member once.
func TestUnknownMembersReachTheInstance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var posted []string
		b := newBench(t, 0, func(b *bench) {
			front := simtest.Front(t, newInstance(t, sim.Config{}).url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
				if r.Method == http.MethodPost && r.URL.Path == "/prompt" {
					body, _ := io.ReadAll(r.Body)
					mu.Lock()
					posted = append(posted, string(body))
					mu.Unlock()
					r.Body = io.NopCloser(bytes.NewReader(body))
				}
				rest.ServeHTTP(w, r)
			})
			b.settings.Instances = []string{front.URL}
		})
		last := func() string {
			mu.Lock()
			defer mu.Unlock()
			return posted[len(posted)-1]
		}
		const id = "11111111-1111-4111-8111-111111111111"
		post := func(more string) {
			t.Helper()
			b.posts("/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": %q, "client_id": "ann", "front": true, "extra_data": {"x": 1}%s}`, picture(1), id, more))
			b.finished(id)
		}
		post("")
		require.NotContains(t, last(), "workflow_metadata")
		first := must(b.hub.Jobs().Find(t.Context(), job.DefaultTenant, id))(t)
		post(`, "workflow_metadata": {"workflow_id": "w", "n":  1e2}, "of a node": [NaN], "number": 5`)
		require.Contains(t, last(), `"workflow_metadata": {"workflow_id": "w", "n":  1e2}`)
		require.Contains(t, last(), `"of a node": [NaN]`)
		for _, once := range []string{`"prompt":`, `"prompt_id":`, `"extra_data":`, `"workflow_metadata":`} {
			require.Equal(t, 1, strings.Count(last(), once), once)
		}
		for _, never := range []string{`"front":`, `"number":`} {
			require.NotContains(t, last(), never)
		}
		second := must(b.hub.Jobs().Find(t.Context(), job.DefaultTenant, id))(t)
		require.NotEqual(t, first.Key, second.Key, "it is another prompt of the same id")
		post(`, "workflow_metadata": {"workflow_id": "w", "n":  1e2}, "of a node": [NaN], "number": 5`)
		third := must(b.hub.Jobs().Find(t.Context(), job.DefaultTenant, id))(t)
		require.Equal(t, second.Key, third.Key, "sent twice it is one")
	})
}
