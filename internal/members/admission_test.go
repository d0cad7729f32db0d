package members

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/keyring"
	"github.com/comfyhub/comfyhub/internal/pins"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// register is what hubs share, without a Redis.
type register struct {
	mu    sync.Mutex
	keys  map[string]string
	away  error
	asked int
}

func (r *register) Claim(_ context.Context, name, key string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.away != nil {
		return "", r.away
	}
	if r.keys[name] == "" {
		r.keys[name] = key
	}
	return r.keys[name], nil
}

func (r *register) Forget(_ context.Context, name string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.keys[name]
	delete(r.keys, name)
	return known, r.away
}

func (r *register) setAway(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = err
}

// gate is an admission that records the outcome of reports.
type gate struct {
	*admission
	mu      sync.Mutex
	taken   []string
	refused []error
}

func newGate(o Owners) *gate {
	g := &gate{}
	g.admission = newAdmission(o,
		func(r fleet.Report) { g.mu.Lock(); defer g.mu.Unlock(); g.taken = append(g.taken, r.Sender.Key) },
		func(_ fleet.Report, err error) { g.mu.Lock(); defer g.mu.Unlock(); g.refused = append(g.refused, err) })
	return g
}

// from reports as an agent and returns the outcome: the key that was accepted, or the error.
func (g *gate) from(name, key string) (taken string, refused error) {
	g.taken, g.refused = nil, nil
	g.admit(fleet.Report{Agent: name, Sender: fleet.Sender{Key: key}})
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.taken) > 0 {
		return g.taken[0], nil
	}
	return "", errors.Join(g.refused...)
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := &register{keys: map[string]string{}}
		one, two := newGate(shared), newGate(shared) // two hubs
		defer one.close()
		defer two.close()
		takes := func(g *gate, key string) {
			t.Helper()
			require.Equal(t, key, must.Get(g.from("box", key))(t))
		}
		refuses := func(g *gate, key string, want error) {
			t.Helper()
			_, err := g.from("box", key)
			require.ErrorIs(t, err, want)
		}
		takes(one, "k1")
		asked := shared.asked
		for range 20 {
			takes(one, "k1")
			refuses(one, "k2", errPinned)
		}
		require.Equal(t, asked, shared.asked, "what is known is not asked for again at once")
		refuses(two, "k2", errPinned)
		takes(two, "k1")

		// While Redis is away, known agents go on and unknown ones wait.
		shared.setAway(errors.New("away"))
		time.Sleep(2 * ownerFresh)
		takes(one, "k1")
		takes(one, "k1")
		refuses(one, "k2", errUnchecked)
		takes(one, "k1")
		_, err := one.from("new", "k3")
		require.ErrorIs(t, err, errUnchecked)
		shared.setAway(pins.ErrFull)
		_, err = one.from("new", "k3")
		require.ErrorIs(t, err, pins.ErrFull)
		shared.setAway(fmt.Errorf("pins: %w", keyring.ErrForged))
		_, err = one.from("new", "k3")
		require.ErrorIs(t, err, errDamaged)
		require.ErrorContains(t, err, "POST /comfyhub/forget?agent=new on")
		takes(one, "k1")
		shared.setAway(nil)
		require.Equal(t, "k3", must.Get(one.from("new", "k3"))(t))

		// A name forgotten at one hub is free at the other a moment later.
		takes(two, "k1")
		require.True(t, must.Get(one.forget(t.Context(), "box"))(t))
		takes(one, "k2")
		refuses(one, "k1", errPinned)
		time.Sleep(2 * ownerFresh)
		_, _ = two.from("box", "k1") // asks again
		refuses(two, "k1", errPinned)
		takes(two, "k2")

		// Without a gossip key everybody gets in.
		open := newGate(nil)
		defer open.close()
		for _, key := range []string{"k1", "", "k2"} {
			takes(open, key)
		}
		require.False(t, must.Get(open.forget(t.Context(), "box"))(t))
	})
}

// An agent that may join can make up any number of names.
func TestAdmissionIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := &register{keys: map[string]string{}}
		g := newGate(shared)
		defer g.close()
		for n := range maxOwners + 100 {
			g.admit(fleet.Report{Agent: fmt.Sprint("n", n), Sender: fleet.Sender{Key: "k"}})
		}
		synctest.Wait()
		require.LessOrEqual(t, len(g.names), maxOwners)
		require.LessOrEqual(t, shared.asked, maxOwners)
		must.Get(g.from("one more", "k"))(t)
		require.Contains(t, shared.keys, "one more", "there is room for another one")
	})
}
