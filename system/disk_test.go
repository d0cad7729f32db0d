package system_test

import (
	"hash/crc32"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
)

// A hub whose disk is full or broken says so, gives out no jobs, and keeps what has been
// made until there is room for it.
func TestSickDisk(t *testing.T) {
	t.Parallel()
	for says, state := range map[string]system.DiskState{
		"no space left": {Full: true},
		"input/output":  {Err: syscall.EIO},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := system.New(t, system.Config{Hubs: 1, Comfys: 1})
				defer w.Close()
				ledger := &system.Ledger{}
				told := asks(w, ledger, "ann", 30)
				waits := asks(w, ledger, "bob", 30)
				w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
				w.Disk.Set(state)
				w.Until(time.Minute, "the hub says so", func() bool { return w.Hubs[0].Ready() != nil })
				require.ErrorContains(t, w.Hubs[0].Ready(), says)
				<-time.After(10 * time.Minute)
				require.Equal(t, 1, w.Comfys[0].Started(), "nothing more is given out")
				w.Disk.Set(system.DiskState{})
				<-told
				<-waits
				require.NoError(t, w.Hubs[0].Ready())
				require.Equal(t, 2, ledger.Accepted())
				require.Equal(t, 2, w.Comfys[0].Started())
				require.Empty(t, ledger.Breaches())
			})
		})
	}
}

// On a slow disk everything takes longer, and arrives.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := system.New(t, system.Config{Hubs: 1, Comfys: 1})
		defer w.Close()
		w.Disk.Set(system.DiskState{Delay: 2 * time.Second})
		ledger := &system.Ledger{}
		began := time.Now()
		<-asks(w, ledger, "ann", 1)
		require.Greater(t, time.Since(began), 5*time.Second)
		require.NoError(t, w.Hubs[0].Ready())
		require.Empty(t, ledger.Breaches())
	})
}

// asks posts a prompt of so many seconds; the channel is closed when its client was told of
// its end.
func asks(w *system.World, ledger *system.Ledger, name string, seconds float64) <-chan struct{} {
	client := w.Client(name, 1, true, ledger)
	told := make(chan struct{})
	go func() {
		defer close(told)
		client.Ask(&system.Prompt{ID: name + "-1", Client: name, Color: colorOf(name), Seconds: seconds})
	}()
	return told
}

// colorOf makes pictures of different people differ: the servers would take the same ones from
// their caches.
func colorOf(name string) int { return int(crc32.ChecksumIEEE([]byte(name)) & 0xFFFFFF) }
