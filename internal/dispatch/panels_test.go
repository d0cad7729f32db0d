package dispatch

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// clientsOf returns a tenant's clients that have a panel.
func (d *Dispatcher) clientsOf(tenant string) map[string]bool {
	d.Panels.mu.Lock()
	defer d.Panels.mu.Unlock()
	clients := map[string]bool{}
	for p := range d.Panels.all {
		if p.key.Tenant == tenant {
			clients[p.key.Client] = true
		}
	}
	return clients
}

// introduce gets a panel for a client. On a slow machine its socket may take longer to open than a
// call waits.
func (b *dispatching) introduce(k stream.Key) (alias comfyui.Alias) {
	b.t.Helper()
	eventually(b.t, func() (ok bool) {
		alias, ok = b.Panels.Introduce(b.t.Context(), b.Instances.First(), k)
		return ok
	}, deadline, time.Millisecond, k.Client)
	return alias
}

// A tenant with too many panels loses its least recently used one. No other tenant loses one.
func TestPanelsOfOneTenant(t *testing.T) {
	t.Parallel()
	b := newDispatching(t, 1)
	eventually(t, func() bool { return b.Instances.First() != nil }, deadline, time.Millisecond)
	introduce := func(tenant, client string) (alias string) {
		return b.introduce(stream.Key{Tenant: tenant, Client: client}).Upstream
	}
	introduce("bob", "c1")
	aliases := map[string]string{}
	for n := range maxTenantPanels {
		client := fmt.Sprint("c", n)
		aliases[client] = introduce("ada", client)
	}
	require.Equal(t, aliases["c0"], introduce("ada", "c0"), "it has one")
	introduce("ada", "more")
	clients := b.clientsOf("ada")
	require.Len(t, clients, maxTenantPanels)
	require.False(t, clients["c1"], "the oldest has gone")
	for _, client := range []string{"c0", "c2", "more"} {
		require.True(t, clients[client], client)
	}
	require.Equal(t, map[string]bool{"c1": true}, b.clientsOf("bob"))
	require.NotEqual(t, aliases["c1"], introduce("ada", "c1"), "a new one, by a name that nobody knows")
	require.False(t, b.clientsOf("ada")["c2"])
}

// When all panels are taken, a tenant that has some gives up one of its own, and a
// tenant that has none gets none.
func TestAllPanelsAreTaken(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		eventually(t, func() bool { return b.Instances.First() != nil }, deadline, time.Millisecond)
		conn := b.Instances.of(b.Instances.First())
		b.Panels.mu.Lock()
		b.Panels.all = map[*panel]struct{}{}
		cancelled := map[string]bool{}
		for n := range maxPanels {
			k := stream.Key{Tenant: fmt.Sprint("t", n%(maxPanels/4)), Client: fmt.Sprint(n)}
			conn.overheard.listen()
			b.Panels.all[&panel{
				conn: conn, key: k, used: time.Now().Add(time.Duration(n-maxPanels) * time.Second),
				cancel: func() { cancelled[k.Client] = true }, // called with the lock held
			}] = struct{}{}
		}
		b.Panels.mu.Unlock()
		_, ok := b.Panels.Introduce(t.Context(), b.Instances.First(), stream.Key{Tenant: "new", Client: "c"})
		require.False(t, ok)
		require.Empty(t, b.clientsOf("new"))
		b.introduce(stream.Key{Tenant: "t1", Client: "c"})
		b.Panels.mu.Lock()
		require.Len(t, b.Panels.all, maxPanels)
		require.Equal(t, map[string]bool{"1": true}, cancelled, "its oldest")
		b.Panels.mu.Unlock()
		require.Len(t, b.clientsOf("t1"), 4)
	})
}

// An unused panel is closed.
func TestIdlePanel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{Logger: slog.New(slog.DiscardHandler)})
		conn := linkTo("gpu", nil)
		conn.overheard.listen()
		var closed atomic.Bool
		p := &panel{conn: conn, used: time.Now(), cancel: func() { closed.Store(true) }}
		d.Panels.all = map[*panel]struct{}{p: {}}
		stop := p.watchIdle(d.Panels)
		time.Sleep(panelIdle - time.Second)
		require.True(t, d.Panels.touch(p))
		time.Sleep(panelIdle - time.Second)
		synctest.Wait()
		require.False(t, closed.Load())
		time.Sleep(panelIdle / 2)
		synctest.Wait()
		require.True(t, closed.Load())
		require.False(t, d.Panels.touch(p))
		stop()
		d.work.Wait()
	})
}

// monitors makes an instance's connection receive the figures that a custom node sends to every
// socket, whatever the instance is doing.
func (b *dispatching) monitors() {
	conn := b.Instances.get(b.instances[0].name)
	done, ended := b.t.Context().Done(), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			conn.socket.frame(comfyui.Frame{Data: []byte(`{"type": "crystools.monitor", "data": {"cpu_utilization": 1}}`)})
			select {
			case <-tick.C:
			case <-done:
				tick.Stop()
				return
			}
		}
	}()
	b.t.Cleanup(func() { <-ended })
}

// The end of a run is noticed even if none of its messages arrives while others do, whatever they
// are: figures of the machine, or renewals that repeat a cancel.
func TestEndIsNoticedBesideOtherMessages(t *testing.T) {
	inBubbles(t, map[string]bool{"monitors": false, "a cancel that is repeated": true}, func(t *testing.T, cancelled bool) {
		b := newDispatching(t, 1, func(b *dispatching, _ *Config) { b.settings.Lease = 300 * time.Millisecond })
		b.connects(1)
		key := b.submit(map[bool]string{false: working, true: endless}[cancelled])
		b.runs(key)
		b.set(func(s *Settings) { s.StallTimeout = 5 * time.Second })
		b.instances[0].SetFault(sim.Faults{Mute: true})
		if !cancelled {
			b.monitors()
			b.Runs.get(key).mail.put(runEvent{kind: socketDown, err: errNotOpen}) // messages were missed
			b.reaches(key, job.Done)
			return
		}
		must(b.Queue.Cancel(t.Context(), key))
		b.leaves(key)
		require.Equal(t, []string{"cancelled"}, b.ends())
	})
}

// A run that hangs is interrupted even though the instance keeps sending what it always sends.
func TestHungRunBesideMonitors(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		b.connects(1)
		b.monitors()
		conn := b.Instances.get(b.instances[0].name)
		eventually(t, func() bool {
			return conn.background.has(comfyui.Message{Type: "crystools.monitor"})
		}, deadline, time.Millisecond)
		key := b.submit(endless)
		b.runs(key)
		b.instances[0].SetFault(sim.Faults{Mute: true})
		b.instances[0].on("POST /interrupt", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			b.set(func(s *Settings) { s.StallTimeout = time.Minute }) // it may take its time to stop
			next.ServeHTTP(w, r)
		})
		b.set(func(s *Settings) { s.StallTimeout = 100 * time.Millisecond })
		require.Contains(t, b.lost(key), "silent for too long")
	})
}

func TestBackground(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		frame := func(kind, prompt string) comfyui.Frame {
			data := must(json.Marshal(map[string]any{"type": kind, "data": map[string]string{"prompt_id": prompt}}))
			return comfyui.Frame{Data: data}
		}
		idle, busy := func() bool { return true }, func() bool { return false }
		var b background
		b.note(frame("monitor", ""), idle)
		b.note(frame("trainer", ""), busy)
		b.note(frame("finished", "p"), idle)
		b.note(frame(comfyui.TypeProgress, ""), idle)
		b.note(comfyui.Frame{Binary: true, Data: []byte("monitor")}, idle)
		require.True(t, b.has(comfyui.Message{Type: "monitor"}))
		require.False(t, b.has(comfyui.Message{Type: "monitor", PromptID: "p"}))
		for _, kind := range []string{"trainer", "finished", comfyui.TypeProgress} {
			require.False(t, b.has(comfyui.Message{Type: kind}), kind)
		}
		for n := range 10 * maxBackground {
			b.note(frame(strconv.Itoa(n), ""), idle)
		}
		require.Len(t, b.types, maxBackground)
	})
}

func said(text string) comfyui.Frame {
	return comfyui.Frame{Data: []byte(`{"type": "my.panel", "data": "` + text + `"}`)}
}

func TestOverheard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o overheard
		o.note(said("nobody listens"))
		require.Empty(t, o.notes)
		a, b := o.listen(), o.listen()
		now := func(text string) arrived { return arrived{said(text), time.Now()} }

		require.False(t, o.broadcast(now("mine"), &a))
		o.note(said("everybody's"))
		require.True(t, o.broadcast(now("everybody's"), &a))
		require.False(t, o.broadcast(now("everybody's"), &a), "the same text once more, to this client alone")
		require.True(t, o.broadcast(now("everybody's"), &b), "each socket has its own")

		o.note(said("before"))
		c := o.listen()
		require.False(t, o.broadcast(now("before"), &c), "it was sent when this socket was not there")

		late := now("late")
		time.Sleep(catchUp + time.Second)
		require.True(t, o.broadcast(late, &a), "it can no longer be known")

		early := now("flood 1")
		for i := range maxOverheard + 10 {
			o.note(said(fmt.Sprint("flood ", i)))
		}
		require.Len(t, o.notes, maxOverheard)
		require.True(t, o.broadcast(early, &a), "what was forgotten counts as sent to everybody")
		require.True(t, o.broadcast(now("mine"), &a), "for a while")
		time.Sleep(catchUp + time.Second)
		require.False(t, o.broadcast(now("mine"), &a))

		for range 3 {
			o.unlisten()
		}
		o.note(said("nobody listens"))
		require.Empty(t, o.notes)
	})
}

// TestCoreMessagesAreNotPassed: messages of runs come over the connection instead.
func TestCoreMessagesAreNotPassed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, kind := range []string{
			"status", "execution_start", "execution_cached", "executing", "progress", "progress_state", "executed", "execution_success",
			"execution_error", "execution_interrupted", "feature_flags", "logs",
		} {
			require.False(t, isCustom(comfyui.Frame{Data: []byte(`{"type": "` + kind + `", "data": {}}`)}), kind)
		}
		for event := range byte(7) {
			require.Equal(t, event > 4, isCustom(comfyui.Frame{Binary: true, Data: []byte{0, 0, 0, event, 0, 0, 0, 1, 'x'}}), event)
		}
		require.True(t, isCustom(said("")))
		for _, odd := range []string{"", "{", "[]", `{"data": {}}`} {
			require.False(t, isCustom(comfyui.Frame{Data: []byte(odd)}))
		}
	})
}
