package system_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
	"github.com/comfyhub/comfyhub/system/network"
)

// inWorld runs a scenario in a world; when it has ended, no promise is broken.
func inWorld(t *testing.T, c system.Config, scenario func(w *system.World, ledger *system.Ledger)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := system.New(t, c)
		defer w.Close()
		ledger := &system.Ledger{}
		scenario(w, ledger)
		require.Empty(t, ledger.Breaches())
	})
}

// A Redis without memory takes no prompt. What was accepted before ends all the same, once
// there is room to write it down.
func TestFullRedis(t *testing.T) {
	inWorld(t, system.Config{Hubs: 1, Comfys: 1}, func(w *system.World, ledger *system.Ledger) {
		told := asks(w, ledger, "ann", 5)
		w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
		w.Redis.SetFull(true)
		late := asks(w, ledger, "bob", 5)
		<-time.After(time.Minute)
		require.Equal(t, 1, ledger.Accepted())
		w.Redis.SetFull(false)
		<-told
		<-late
		require.Equal(t, 2, ledger.Accepted())
		require.Equal(t, 2, w.Comfys[0].Started())
	})
}

// The replica that takes over has not heard of a prompt that was accepted; a hub that lives
// puts it back.
func TestFailover(t *testing.T) {
	inWorld(t, system.Config{Hubs: 2, Comfys: 1}, func(w *system.World, ledger *system.Ledger) {
		w.Redis.Replicate()
		told := asks(w, ledger, "ann", 5)
		w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
		w.Redis.Failover()
		<-told
		require.Equal(t, 1, w.Comfys[0].Started())
	})
}

// Two minutes between Redis's clock and the hubs' are nobody's loss.
func TestSkewedClock(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": 2 * time.Minute, "behind": -2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, system.Config{Hubs: 2, Comfys: 1, RedisAhead: ahead}, func(w *system.World, ledger *system.Ledger) {
				<-asks(w, ledger, "ann", 90)
				require.Equal(t, 1, w.Comfys[0].Started())
			})
		})
	}
}

// A client whose connection swallowed the end, and then broke, is told of it on its next
// socket.
func TestEndIsLostWithTheConnection(t *testing.T) {
	inWorld(t, system.Config{Hubs: 2, Comfys: 1}, func(w *system.World, ledger *system.Ledger) {
		told := asks(w, ledger, "ann", 5)
		w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
		for _, hub := range []string{"hub1", "hub2"} {
			w.Net.SetBoth("ann", hub, network.Link{Silent: true})
		}
		<-time.After(8 * time.Second)
		for _, hub := range []string{"hub1", "hub2"} {
			w.Net.Reset("ann", hub)
			w.Net.SetBoth("ann", hub, network.Link{})
		}
		select {
		case <-told:
		case <-time.After(time.Minute):
			require.Fail(t, "nobody tells the client")
		}
	})
}

// A reload that leaves out the server that runs a prompt, and one that takes it in again, lose
// nothing.
func TestReload(t *testing.T) {
	inWorld(t, system.Config{Hubs: 1, Comfys: 2}, func(w *system.World, ledger *system.Ledger) {
		told := asks(w, ledger, "ann", 60)
		w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
		first := running(w)
		w.Hubs[0].Reload(first.Name())
		<-time.After(10 * time.Second)
		w.Hubs[0].Reload("")
		<-told
		require.Positive(t, first.Started())
	})
}

// The same seed gives the same faults at the same times, and the same choices of clients. How
// many prompts a client posts depends on how long they take, so one run may have more.
func TestSameSeedSameTrace(t *testing.T) {
	if testing.Short() {
		t.Skip("several worlds, one would do for the race detector")
	}
	t.Parallel()
	faults := system.Faults(1, size, load.For)
	_, one := run(t, 1, faults, nil)
	_, two := run(t, 1, system.Faults(1, size, load.For), nil)
	t.Log(one.Hash(), two.Hash())
	decided, again := one.Decisions(), two.Decisions()
	require.NotEmpty(t, decided["faults"])
	require.Equal(t, decided["faults"], again["faults"])
	require.Len(t, again, len(decided))
	for who, choices := range decided {
		both := min(len(choices), len(again[who]))
		require.Positive(t, both)
		require.Equal(t, choices[:both], again[who][:both], who)
	}
}

// A name that Redis has forgotten is not given to another picture, though no hub remembers it
// either.
func TestNamesSurviveAFailover(t *testing.T) {
	inWorld(t, system.Config{Hubs: 1, Comfys: 2}, func(w *system.World, ledger *system.Ledger) {
		w.Comfys[1].Kill()
		<-asks(w, ledger, "ann", 1)
		w.Redis.Replicate()
		<-asks(w, ledger, "bob", 1)
		before := outputs(w, "bob")
		require.Len(t, before, 1)
		w.Hubs[0].Kill()
		w.Hubs[0].LoseNotes()
		w.Redis.Failover()
		w.Comfys[0].Kill()
		w.Comfys[1].Restart() // it numbers its pictures from one
		w.Hubs[0].Start()
		<-asks(w, ledger, "eve", 1)
		require.Empty(t, outputs(w, "bob"))
		after := outputs(w, "eve")
		require.Len(t, after, 1)
		require.NotEqual(t, before, after)
	})
}

// outputs are the names of the pictures in the history of somebody's prompt.
func outputs(w *system.World, client string) []string {
	_, answer := w.Hubs[0].Call(http.MethodGet, "/history/"+client+"-1", "")
	return slices.Compact(pictureName.FindAllString(string(answer), -1))
}

var pictureName = regexp.MustCompile(`ComfyUI_\d+_\.png`)

// The only hub that is left accepts prompts at once, although no server is there.
func TestOneHubAccepts(t *testing.T) {
	inWorld(t, system.Config{Hubs: 2, Comfys: 1}, func(w *system.World, _ *system.Ledger) {
		w.Hubs[0].Kill()
		w.Comfys[0].Kill()
		began := time.Now()
		status, answer := w.Hubs[1].Call(http.MethodPost, "/prompt", `{"prompt_id": "early", "prompt": `+system.Graph(1, 1)+`}`)
		require.Equal(t, http.StatusOK, status, string(answer))
		require.Less(t, time.Since(began), time.Second)
		w.Comfys[0].Restart()
		w.Until(time.Minute, "it has ended", func() bool {
			_, answer := w.Hubs[1].Call(http.MethodGet, "/history/early", "")
			return strings.Contains(string(answer), "execution_success")
		})
	})
}
