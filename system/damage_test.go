package system_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/system"
)

// A hub whose data folder gives nothing and takes nothing starts, ends what it had, and accepts
// more. It says what it lacks, each thing once.
func TestHubWithoutItsDataFolder(t *testing.T) {
	var log logtest.Log
	inWorld(t, system.Config{Hubs: 1, Comfys: 1, Log: &log}, func(w *system.World, ledger *system.Ledger) {
		told := asks(w, ledger, "ann", 60)
		w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
		w.Hubs[0].Kill()
		repair := w.Hubs[0].BreakData()
		w.Hubs[0].Start()
		<-told
		<-asks(w, ledger, "bob", 1)
		require.NoError(t, w.Hubs[0].Ready())
		repair()
		<-asks(w, ledger, "eve", 1)
		w.Hubs[0].Kill()
		w.Hubs[0].Start()
		<-asks(w, ledger, "joe", 1)
		require.Equal(t, 4, w.Comfys[0].Started())
	})
	said := map[string]int{}
	for line := range strings.SplitSeq(log.String(), "\n") {
		if strings.Contains(line, "the data folder fails") || strings.Contains(line, "cannot read what was noted") {
			_, what, _ := strings.Cut(line, "msg=")
			said[what]++
		}
	}
	require.Len(t, said, 6, "%v", said) // the id, the spool, the mark when it is read and when it is kept, and both folders of notes
	for what, times := range said {
		require.Equal(t, 1, times, what)
	}
}

// What a power cut leaves of a hub's data is no reason not to start, and no prompt is lost while
// Redis has them.
func TestPowerCutAtAHub(t *testing.T) {
	inWorld(t, system.Config{Hubs: 1, Comfys: 2, Agents: 1}, func(w *system.World, ledger *system.Ledger) {
		for n := range 6 {
			name := fmt.Sprint("client", n)
			told := asks(w, ledger, name, 20)
			w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
			w.Hubs[0].Kill()
			w.Hubs[0].LosePower()
			w.Hubs[0].Start()
			<-told
		}
		require.NoError(t, w.Hubs[0].Ready())
		require.Equal(t, 6, w.Comfys[0].Started()+w.Comfys[1].Started())
	})
}

// A storage that said that files are synced has lost them with its power. What is older is there,
// what can be seen to be missing or cut off comes from its server again, and work goes on.
func TestStorageLosesWhatItHasSynced(t *testing.T) {
	inWorld(t, system.Config{Hubs: 2, Comfys: 1}, func(w *system.World, ledger *system.Ledger) {
		view := func(name string) []byte {
			names := outputs(w, name)
			require.Len(t, names, 1)
			status, picture := w.Hubs[1].Call(http.MethodGet, "/view?"+url.Values{"filename": names}.Encode(), "")
			require.Equal(t, http.StatusOK, status, "%s: %s", name, picture)
			return picture
		}
		<-asks(w, ledger, "old", 1)
		losePower := w.Disk.Lie()
		was := map[string][]byte{"old": view("old")}
		for n := range 10 {
			name := fmt.Sprint("client", n)
			<-asks(w, ledger, name, 1)
			was[name] = view(name)
		}
		losePower()
		<-time.After(30 * time.Second)
		zeros := 0
		for name, before := range was {
			now := view(name)
			require.Len(t, now, len(before), name)
			if name != "old" && bytes.Count(now, []byte{0}) == len(now) {
				zeros++ // nothing tells them from a picture
				continue
			}
			require.Equal(t, before, now, name)
		}
		require.LessOrEqual(t, zeros, 4)
		require.NoError(t, w.Hubs[0].Ready())
		<-asks(w, ledger, "new", 1)
	})
}
