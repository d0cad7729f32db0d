package hub

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/sim"
)

// What is reserved for a tenant is free for its prompts, and those of others neither run
// there nor learn whose it is.
func TestReserved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var own string
		b := shared(t, TenantLimits{}, func(b *bench) {
			b.instances = append(b.instances, newInstance(t, sim.Config{}), newInstance(t, sim.Config{OmitClasses: []string{"SimulatedWork"}}))
			own, _ = InstanceName(b.instances[0].url())
			b.settings.Reserved = []Reservation{{Instances: own, Tenants: []string{"ada", "studio"}}}
		})
		b.connected(2)
		eventually(t, b.hub.classes.hasLooked, time.Minute, 5*time.Millisecond)
		post := func(tenant, graph string) (int, string) {
			return b.as(tenant, http.MethodPost, "/prompt", fmt.Sprintf(`{"prompt": %s, "prompt_id": "%s-id"}`, graph, tenant))
		}
		for range 3 { // its own instance is the better one, and nobody else's
			status, answer := post("bob", picture(1))
			require.Equal(t, http.StatusOK, status, answer)
			eventually(t, func() bool {
				_, text := b.as("bob", http.MethodGet, "/hub/jobs/bob-id", "")
				return strings.Contains(text, `"status": "done"`) && !strings.Contains(text, own)
			}, time.Minute, 5*time.Millisecond)
		}
		status, answer := post("bob", work(1, 1, "none"))
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, answer, "reserved for other tenants")
		require.Contains(t, answer, `"node_errors": {}`)
		require.NotContains(t, answer, "ada")
		status, answer = post("ada", endless(1))
		require.Equal(t, http.StatusOK, status, answer)
		eventually(t, func() bool {
			_, text := b.as("ada", http.MethodGet, "/hub/jobs/ada-id", "")
			return strings.Contains(text, `"status": "running"`) && strings.Contains(text, own)
		}, time.Minute, 5*time.Millisecond)

		require.NoError(t, b.hub.Operator().Pause(t.Context(), StopTenant("bob")))
		status, answer = post("bob", picture(2))
		require.Equal(t, http.StatusOK, status, answer)
		status, answer = b.as("bob", http.MethodPost, "/hub/explain", `{"prompt_id": "bob-id"}`)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, answer, "it is reserved for other tenants")
		require.NotContains(t, answer, "studio")
		_, answer = b.as("bob", http.MethodGet, "/hub/instances", "")
		require.NotContains(t, answer, "studio")
		require.NotContains(t, answer, "reserved")
		require.Contains(t, string(InstancesJSON(b.hub)), `"reserved": ["ada", "studio"]`)
	})
}
