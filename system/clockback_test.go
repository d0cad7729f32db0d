package system_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
)

// Redis's clock is set back by an hour, and a hub dies, which may be the one that holds the
// only run: the other hub takes that over as soon as it would have otherwise.
func TestClockIsSetBack(t *testing.T) {
	t.Parallel()
	for n := range 2 {
		t.Run(fmt.Sprint("hub", n+1, " dies"), func(t *testing.T) {
			inWorld(t, system.Config{Hubs: 2, Comfys: 1}, func(w *system.World, ledger *system.Ledger) {
				told := asks(w, ledger, "ann", 30)
				w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
				w.Redis.SetAhead(-time.Hour)
				w.Hubs[n].Kill()
				select {
				case <-told:
				case <-time.After(time.Minute):
					require.Fail(t, "the run waits for the clock")
				}
				require.Equal(t, 1, w.Comfys[0].Started(), "it ran once")
			})
		})
	}
}
