package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
)

// The dispatcher holds a connection while it asks the queue for permission to give
// it a job. A run that is being taken over must wait for that and not be given up.
func TestAdoptedRunWaitsForTheLink(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := New(Config{Settings: func() Settings { return Settings{ContactTimeout: time.Minute} }})
		conn := &connection{name: "gpu", fleet: fleet.NewRegistry()}
		trying := &run{d: d, claim: claim{own: job.Job{Key: "other"}}}
		require.True(t, conn.attach(trying))
		adopted := &run{d: d, claim: claim{own: job.Job{Key: "adopted"}}}
		seized := make(chan bool)
		go func() { seized <- d.seize(t.Context(), conn, adopted) }()
		select {
		case <-seized:
			t.Fatal("the connection was not free")
		case <-time.After(50 * time.Millisecond):
		}
		require.True(t, conn.detach(trying))
		require.True(t, <-seized)
		require.Equal(t, adopted, conn.running())
	})
}

// An instance can refuse a prompt before the hub has reported that it runs there.
// The instance must not be shown as busy then, because nothing would ever make it
// idle again.
func TestRunThatEndsBeforeItIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		registry := fleet.NewRegistry()
		name := must(registry.AddStatic("http://127.0.0.1:8188"))
		registry.Observe(fleet.InstanceReport{Name: name, Up: true})
		state := func() fleet.State {
			i, _ := registry.Instance(name)
			return i.State
		}
		conn := &connection{name: name, fleet: registry}
		one, two := &run{claim: claim{own: job.Job{ID: "one"}}}, &run{claim: claim{own: job.Job{ID: "two"}}}
		require.True(t, conn.attach(one))
		require.True(t, conn.detach(one))
		conn.show(one)
		require.Equal(t, fleet.Idle, state())
		require.True(t, conn.attach(two))
		conn.show(one)
		require.Equal(t, fleet.Idle, state())
		conn.show(two)
		require.Equal(t, fleet.Busy, state())
		require.False(t, conn.detach(one))
		require.Equal(t, fleet.Busy, state(), "a run that was there before frees nothing")
		require.True(t, conn.detach(two))
		require.Equal(t, fleet.Idle, state())
	})
}
