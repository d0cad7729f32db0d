package system_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/system"
	"github.com/comfyhub/comfyhub/system/network"
)

// idleSilences make the n-th server, which is idle, fall silent for good. Those that need an
// agent say so.
var idleSilences = map[string]struct {
	agents int
	fall   func(w *system.World, n int)
}{
	"the agent hangs":                   {2, silences["the agent hangs"]},
	"the server of an agent hangs":      {2, silences["the server hangs"]},
	"the agent is not heard":            {2, silences["the agent is not heard"]},
	"the server of the Caddyfile hangs": {0, silences["the server hangs"]},
	"the link to one of the Caddyfile cut": {0, func(w *system.World, n int) {
		w.Net.SetBoth(fmt.Sprint("comfy", n), "hub1", network.Link{Silent: true})
	}},
}

// frozenIdle makes a world of two servers, of which one is idle and falls silent. Ann's next
// prompt would go to that one, since her last one ran there.
func frozenIdle(t *testing.T, scenario func(t *testing.T, f *frozen)) {
	t.Helper()
	for name, c := range idleSilences {
		if short(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := system.New(t, system.Config{Hubs: 1, Comfys: 2, Agents: c.agents})
				defer w.Close()
				f := &frozen{w: w, ledger: &system.Ledger{}}
				f.ann = w.Client("ann", 1, true, f.ledger)
				first := make(chan struct{})
				go func() {
					defer close(first)
					f.ann.Ask(&system.Prompt{ID: "ann-0", Client: "ann", Color: 1, Seconds: 2})
				}()
				w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
				f.n = number(w, running(w))
				f.fall = func() { c.fall(w, f.n) }
				defer f.heal()
				scenario(t, f)
				<-first
				require.Empty(t, f.ledger.Breaches())
			})
		})
	}
}

// frozen is a world with a server that falls silent while it is idle.
type frozen struct {
	w      *system.World
	ledger *system.Ledger
	ann    *system.Client
	n      int
	fall   func()
}

// heal ends the silence.
func (f *frozen) heal() {
	heal(f.w, f.n)
	f.w.Net.SetBoth(fmt.Sprint("comfy", f.n), "hub1", network.Link{})
}

// idles waits until the server is idle, and a while longer.
func (f *frozen) idles() {
	f.w.Until(time.Minute, "it is idle", func() bool { return f.w.Comfys[f.n-1].Remaining() == 0 })
	<-time.After(7 * time.Second)
}

// asks runs ann's next prompt, and returns how long that took and how many attempts.
func (f *frozen) asks(t *testing.T) (took time.Duration, attempts int) {
	t.Helper()
	began := time.Now()
	f.ann.Ask(&system.Prompt{ID: "ann-1", Client: "ann", Color: 2, Seconds: 1})
	took = time.Since(began)
	status, answer := f.w.Hubs[0].Call(http.MethodGet, "/hub/jobs/ann-1", "")
	require.Equal(t, http.StatusOK, status, "%s", answer)
	var j struct{ Attempts int }
	require.NoError(t, json.Unmarshal(answer, &j))
	return took, j.Attempts
}

// shown is the state in which the hub shows the server.
func (f *frozen) shown(t *testing.T) string {
	t.Helper()
	status, answer := f.w.Hubs[0].Call(http.MethodGet, "/hub/instances", "")
	require.Equal(t, http.StatusOK, status, "%s", answer)
	var instances []struct{ Name, State string }
	require.NoError(t, json.Unmarshal(answer, &instances))
	for _, i := range instances {
		if strings.Contains(i.Name, strconv.Itoa(f.n)) {
			return i.State
		}
	}
	return ""
}

// A server falls silent while it is idle: it gets no prompt, the other one does, and it is not
// shown as idle before it answers again.
func TestFrozenIdleServer(t *testing.T) {
	t.Parallel()
	frozenIdle(t, func(t *testing.T, f *frozen) {
		f.idles()
		f.fall()
		<-time.After(3 * time.Second)
		took, attempts := f.asks(t)
		require.Less(t, took, 3*time.Second)
		require.Equal(t, 1, attempts)
		f.w.Until(2*time.Second, "it is not shown as idle", func() bool { return f.shown(t) == "offline" })
		<-time.After(time.Minute)
		require.Equal(t, "offline", f.shown(t))
		f.heal()
		f.w.Until(10*time.Second, "it is shown as idle again", func() bool { return f.shown(t) == "idle" })
	})
}

// The same while the other server is busy: the prompt waits for that one, or for the silent
// one to answer.
func TestFrozenIdleServerBesideABusyOne(t *testing.T) {
	t.Parallel()
	for _, heals := range []bool{false, true} {
		frozenIdle(t, func(t *testing.T, f *frozen) {
			eve := asks(f.w, f.ledger, "eve", 40)
			f.idles()
			f.fall()
			<-time.After(3 * time.Second)
			began := time.Now()
			if heals {
				go func() {
					<-time.After(2 * time.Second)
					f.heal()
				}()
			}
			took, attempts := f.asks(t)
			require.Equal(t, 1, attempts)
			if heals {
				require.Less(t, took, 5*time.Second)
			}
			<-eve
			require.Less(t, took, time.Since(began)+3*time.Second)
		})
	}
}

// A server falls silent just before it is given a prompt: that is lost once there was no sign
// of life for contact_timeout.
func TestServerFreezesBeforeThePost(t *testing.T) {
	t.Parallel()
	frozenIdle(t, func(t *testing.T, f *frozen) {
		f.idles()
		f.fall()
		took, attempts := f.asks(t)
		require.Less(t, took, 19*time.Second)
		require.LessOrEqual(t, attempts, 2)
		f.heal()
		f.w.Until(10*time.Second, "it is shown as idle again", func() bool { return f.shown(t) == "idle" })
		<-time.After(5 * time.Second)
		require.Zero(t, f.w.Comfys[f.n-1].Remaining())
	})
}
