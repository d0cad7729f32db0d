package system_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/system"
	"github.com/comfyhub/comfyhub/system/network"
)

// forEachSkew runs a scenario where Redis's clock is two minutes behind that of the hubs, and
// where it is ahead. Each of the two hubs is the one in question once.
func forEachSkew(t *testing.T, scenario func(w *system.World, ledger *system.Ledger, hub *system.Hub)) {
	t.Helper()
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"behind": -2 * time.Minute, "ahead": 2 * time.Minute} {
		for n := range 2 {
			t.Run(fmt.Sprint(name, ", hub", n+1), func(t *testing.T) {
				inWorld(t, system.Config{Hubs: 2, Comfys: 1, RedisAhead: ahead}, func(w *system.World, ledger *system.Ledger) {
					scenario(w, ledger, w.Hubs[n])
				})
			})
		}
	}
}

// A prompt ends while its client is away, and then a hub is killed, perhaps the one that has
// run it: the other one tells the client, though by its own clock that end is long past or
// yet to come.
func TestMissedEndDespiteSkewedClock(t *testing.T) {
	forEachSkew(t, func(w *system.World, ledger *system.Ledger, hub *system.Hub) {
		told := asks(w, ledger, "ann", 5)
		w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
		setLinks := func(l network.Link) {
			for _, h := range []string{"hub1", "hub2"} {
				w.Net.SetBoth("ann", h, l)
			}
		}
		setLinks(network.Link{Silent: true})
		<-time.After(8 * time.Second)
		hub.Kill()
		for _, h := range []string{"hub1", "hub2"} {
			w.Net.Reset("ann", h)
		}
		setLinks(network.Link{})
		select {
		case <-told:
		case <-time.After(time.Minute):
			require.Fail(t, "nobody tells the client")
		}
		require.Equal(t, 1, w.Comfys[0].Started())
	})
}

// Redis's clock is set forward by an hour while a prompt runs: all leases seem to have ended,
// and yet it runs once, and its tenant pays for what it has taken.
func TestClockIsSetForward(t *testing.T) {
	inWorld(t, system.Config{Hubs: 2, Comfys: 1}, func(w *system.World, ledger *system.Ledger) {
		told := asks(w, ledger, "ann", 10)
		w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
		w.Redis.SetAhead(time.Hour)
		select {
		case <-told:
		case <-time.After(time.Minute):
			require.Fail(t, "nobody tells the client")
		}
		require.Equal(t, 1, w.Comfys[0].Started())
		status, answer := w.Hubs[0].Call(http.MethodGet, "/hub/usage", "")
		require.Equal(t, http.StatusOK, status, string(answer))
		var bill struct {
			Usage []struct {
				Seconds float64 `json:"gpu_seconds"`
			}
		}
		require.NoError(t, json.Unmarshal(answer, &bill))
		require.Len(t, bill.Usage, 1, string(answer))
		require.InDelta(t, 10, bill.Usage[0].Seconds, 5)
		<-asks(w, ledger, "bob", 1)
	})
}

// The checkup tells of a second between the clocks, and not of the time that a slow Redis takes.
func TestSkewIsTold(t *testing.T) {
	t.Parallel()
	for ahead, told := range map[time.Duration]string{
		900 * time.Millisecond: "", 1200 * time.Millisecond: "differ by 1.2s", -1200 * time.Millisecond: "differ by 1.2s",
	} {
		t.Run(ahead.String(), func(t *testing.T) {
			inWorld(t, system.Config{Hubs: 1, Comfys: 1, RedisAhead: ahead}, func(w *system.World, _ *system.Ledger) {
				about := func() string {
					all := w.Hubs[0].Findings()
					if n := slices.IndexFunc(all, func(f config.Finding) bool { return f.About == "clock" }); n >= 0 {
						return all[n].Says
					}
					return ""
				}
				require.Contains(t, about(), told)
				require.Equal(t, told == "", about() == "")
				w.Net.Set("redis", "hub1", network.Link{Delay: 1500 * time.Millisecond}) // one way only
				if told == "" {
					require.Empty(t, about())
				}
			})
		})
	}
}
