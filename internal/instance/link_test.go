package instance

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
)

func TestUpstreamID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		chosen := uuid.NewString()
		var conn, other givenIDs
		require.Equal(t, chosen, conn.UpstreamID(job.Job{ID: chosen}))
		require.Equal(t, chosen, other.UpstreamID(job.Job{ID: chosen}), "another instance has not seen it")
		fresh := map[string]bool{chosen: true}
		for _, j := range []job.Job{
			{ID: chosen},                        // already used by its client, or by another tenant's
			{ID: uuid.NewString(), Attempts: 1}, // a later attempt
			{ID: "no UUID"},
			{ID: "6A52EA99-846A-4FED-B36F-18AEAC669F3E"}, // not in the form that servers take
		} {
			id := conn.UpstreamID(j)
			require.NoError(t, uuid.Validate(id))
			require.NotEqual(t, j.ID, id)
			require.False(t, fresh[id])
			fresh[id] = true
		}
	})
}

func TestPrecedence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		now, never := time.Now(), time.Time{}
		for name, c := range map[string]struct {
			key         string
			freed, idle time.Time
			left, first bool
		}{
			"nobody's":                       {"", never, never, false, false},
			"just freed":                     {"k", now, never, true, false},
			"freed before":                   {"k", now.Add(-firstTurn), never, false, false},
			"seen idle for the first time":   {"k", never, never, true, true},
			"seen idle before":               {"k", never, now.Add(-time.Millisecond), true, false},
			"idle, and nobody has told":      {"k", never, now.Add(-firstTurnLost), false, false},
			"seen idle before it was freed":  {"k", now, now.Add(-time.Hour), true, false},
			"freed before it was seen again": {"k", now.Add(-firstTurn), now, false, false},
		} {
			left, first, wait := (&Precedence{key: c.key, freed: c.freed, idle: c.idle}).IsLeft(now)
			require.Equal(t, c.left, left, name)
			require.Equal(t, c.first, first, name)
			require.Equal(t, c.first, wait > 0, name)
		}
	})
}

// TestReconcilesOnlyWhatChanged shows that after a change at one instance the dispatcher looks at
// no other: it would open a connection to the second.
func TestReconcilesOnlyWhatChanged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		registry := fleet.NewRegistry()
		var asked []string
		parts := New(Config{
			Fleet: registry, Connected: &comfyui.Clients{}, Logger: slog.New(slog.DiscardHandler),
			Connect: func(i fleet.Instance) (*comfyui.Client, error) {
				asked = append(asked, i.Name)
				return nil, errors.New("none")
			},
		})
		changes := registry.Subscribe()
		defer changes.Close()
		one := sure(registry.AddStatic("http://127.0.0.1:10001"))
		two := sure(registry.AddStatic("http://127.0.0.1:10002"))
		parts.linker.reconcile(context.Background(), changes.Take())
		require.ElementsMatch(t, []string{one, two}, asked)
		asked = nil
		registry.SetSick(two, "a run hangs")
		parts.linker.reconcile(context.Background(), changes.Take())
		require.Equal(t, []string{two}, asked)
	})
}

func TestUsable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var conn past
		busy := func(queue int, job string, fence int64) fleet.Instance {
			return fleet.Instance{State: fleet.Busy, Report: fleet.InstanceReport{Up: true, Queue: queue, Job: job, Fence: fence}}
		}
		require.True(t, conn.Usable(fleet.Instance{State: fleet.Idle}))
		require.False(t, conn.Usable(busy(1, "", 0)), "nothing has run here")
		conn.Ended(job.Run{Key: "last", Fence: 7})
		for _, c := range []struct {
			what     string
			instance fleet.Instance
			want     bool
		}{
			{"idle", fleet.Instance{State: fleet.Idle}, true},
			{"sick", fleet.Instance{State: fleet.Sick, Report: fleet.InstanceReport{Job: "last", Queue: 1, Fence: 7}}, false},
			{"the run that has ended", busy(1, "last", 7), true},
			{"and another one behind it", busy(2, "last", 7), false},
			{"a run before it", busy(1, "before", 6), true},
			{"with that run behind it", busy(2, "before", 6), true},
			{"a later run of another hub", busy(1, "other", 8), false},
			{"nobody knows whose", busy(1, "", 0), false},
		} {
			require.Equal(t, c.want, conn.Usable(c.instance), c.what)
		}
	})
}
