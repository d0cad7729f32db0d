package system_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
)

// Redis's clock is set forward by an hour while a prompt of 3 s runs, and then its hub is
// killed: the tenant pays for seconds, however the other hub gets the run.
func TestBillAfterAJumpAndAKill(t *testing.T) {
	t.Parallel()
	for killed := range 2 {
		t.Run(fmt.Sprint("hub", killed+1), func(t *testing.T) {
			inWorld(t, system.Config{Hubs: 2, Comfys: 1}, func(w *system.World, ledger *system.Ledger) {
				told := asks(w, ledger, "ann", 3)
				w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
				w.Redis.SetAhead(time.Hour)
				w.Hubs[killed].Kill()
				select {
				case <-told:
				case <-time.After(2 * time.Minute):
					require.Fail(t, "nobody tells the client")
				}
				require.Less(t, billed(t, w.Hubs[1-killed]), 60.)
			})
		})
	}
}

// A run that went on while no hub lived is billed for all of it.
func TestBillOfARunWithoutAHub(t *testing.T) {
	inWorld(t, system.Config{Hubs: 1, Comfys: 1}, func(w *system.World, ledger *system.Ledger) {
		told := asks(w, ledger, "ann", 120)
		w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
		w.Hubs[0].Kill()
		<-time.After(5 * time.Minute)
		w.Hubs[0].Start()
		select {
		case <-told:
		case <-time.After(5 * time.Minute):
			require.Fail(t, "nobody tells the client")
		}
		seconds := billed(t, w.Hubs[0])
		require.Greater(t, seconds, 115.)
		require.Less(t, seconds, 130.)
	})
}

// billed is what a hub says that all have used, in seconds of GPUs.
func billed(t *testing.T, h *system.Hub) float64 {
	t.Helper()
	status, answer := h.Call(http.MethodGet, "/hub/usage", "")
	require.Equal(t, http.StatusOK, status, string(answer))
	var bill struct {
		Usage []struct {
			Seconds float64 `json:"gpu_seconds"`
		}
	}
	require.NoError(t, json.Unmarshal(answer, &bill))
	require.Len(t, bill.Usage, 1, string(answer))
	return bill.Usage[0].Seconds
}
