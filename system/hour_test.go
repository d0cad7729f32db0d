package system_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
)

// A prompt takes fifty minutes. After ten, the server that runs it dies, and a minute later
// so does the hub that has the client's socket; the client is told of one end.
func TestAnHour(t *testing.T) {
	if testing.Short() {
		t.Skip("an hour: two minutes would do for the race detector")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := system.New(t, system.Config{Hubs: 2, Comfys: 2})
		defer w.Close()
		began := time.Now()
		ledger := &system.Ledger{}
		client := w.Client("ann", 1, true, ledger)
		prompt := &system.Prompt{ID: "ann-film", Client: "ann", Color: 0x123456, Seconds: 3000}
		done := make(chan struct{})
		go func() {
			defer close(done)
			client.Ask(prompt)
		}()
		w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
		<-time.After(10 * time.Minute)
		first := running(w)
		first.Kill()
		<-time.After(time.Minute)
		first.Restart()
		w.Until(time.Minute, "another server runs it", func() bool { return running(w) != nil })
		hub := w.Hubs[client.Hub()]
		hub.Kill()
		<-time.After(time.Minute)
		hub.Start()
		<-done
		require.Empty(t, ledger.Breaches())
		require.Equal(t, 1, ledger.Accepted())
		starts := 0
		for _, c := range w.Comfys {
			starts += c.Started()
		}
		require.Equal(t, 2, starts)
		require.GreaterOrEqual(t, time.Since(began), time.Hour)
	})
}

// running is the server that runs something.
func running(w *system.World) *system.Comfy {
	for _, c := range w.Comfys {
		if c.Remaining() > 0 {
			return c
		}
	}
	return nil
}

// Without faults everything arrives, and nothing is told twice.
func TestFairWeather(t *testing.T) {
	t.Parallel()
	ledger, _ := run(t, 1, nil, nil)
	require.Empty(t, ledger.Breaches())
	require.Positive(t, ledger.Accepted())
}
