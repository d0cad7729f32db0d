package hub

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simtest"
)

func impatient(b *bench) { b.settings.StallTimeout = 200 * time.Millisecond }

// givenUp waits until the hub considers its first instance sick, and then makes
// the hub patient: on a busy machine a healthy instance may be silent just as
// long.
func (b *bench) givenUp() {
	b.t.Helper()
	eventually(b.t, func() bool { return stateOf(b, b.instances[0]) == fleet.Sick }, time.Minute, 10*time.Millisecond)
	b.settings.StallTimeout = 0
	require.NoError(b.t, b.hub.Start(b.t.Context(), b.settings))
}

func stateOf(b *bench, i *instance) fleet.State {
	for _, known := range b.hub.fleet.Instances() {
		if known.URL == i.url() {
			return known.State
		}
	}
	return ""
}

// An instance with an open socket that does not tell at once what it can run is
// asked again.
func TestInstanceThatStumblesWhenItIsAsked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var stumbles atomic.Int64
		front := simtest.Front(t, newInstance(t, sim.Config{}).url(), func(w http.ResponseWriter, r *http.Request, rest http.Handler) {
			switch {
			case r.URL.Path == "/ws" && strings.HasPrefix(r.URL.Query().Get("clientId"), "comfyhub-"):
				stumbles.Store(3)
			case r.URL.Path == "/object_info" && stumbles.Add(-1) >= 0:
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			rest.ServeHTTP(w, r)
		})
		b := newBench(t, 0, func(b *bench) { b.settings.Instances = []string{front.URL} })
		b.connected(1)
		require.Negative(t, stumbles.Load())
		b.finished(b.submit(picture(1), "ann"))
	})
}

// A zombie answers HTTP and accepts prompts, but runs none.
func TestZombieIsLeftForAnother(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, impatient)
		b.instances[0].Silence()
		id := b.submit(picture(1), "ann")
		b.givenUp()
		_, ended := b.history(id)
		require.False(t, ended)
		// A restart cures it, and its job runs.
		b.instances[0].die()
		b.instances[0].revive()
		require.Equal(t, "success", b.finished(id).Status.Text)
	})
}

// A run that hangs and ignores interrupts moves to another instance.
func TestHangingRunGoesElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, impatient)
		b.instances[0].SetFault(sim.Faults{HangAfterStep: 2})
		id := b.submit(work(5, 1, "none"), "ann")
		b.givenUp()
		spare := newInstance(t, sim.Config{})
		b.settings.Instances = append(b.settings.Instances, spare.url())
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.Equal(t, 1, spare.Finished())
	})
}

// The hub's prompt ended up behind one that somebody posted directly to the instance.
func TestPromptBehindAForeignOneIsTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		post := func(url, body string) {
			resp, err := http.Post(url+"/prompt", "application/json", strings.NewReader(body))
			require.NoError(t, err)
			status, answer := read(t, resp)
			require.Equal(t, http.StatusOK, status, string(answer))
		}
		post(b.instances[0].url(), fmt.Sprintf(`{"prompt": %s}`, work(3000, 1, "none")))
		eventually(t, func() bool { return stateOf(b, b.instances[0]) == fleet.Foreign }, time.Minute, 5*time.Millisecond)
		id := b.submit(picture(1), "ann")
		spare := newInstance(t, sim.Config{})
		b.settings.Instances = append(b.settings.Instances, spare.url())
		require.NoError(t, b.hub.Start(t.Context(), b.settings))
		require.Equal(t, "success", b.finished(id).Status.Text)
		require.Equal(t, 1, b.instances[0].Started(), "the foreign prompt was left alone")
	})
}

// A run that takes longer than the operator allows is ended and not repeated.
func TestJobTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1, func(b *bench) { b.settings.JobTimeout = 300 * time.Millisecond })
		socket := b.dial("ann")
		id := b.submit(work(3000, 1, "none"), "ann")
		types := socket.until(id)
		require.Equal(t, "execution_error", types[len(types)-2])
		require.Equal(t, "error", b.finished(id).Status.Text)
		require.Equal(t, 1, started(b))
	})
}
