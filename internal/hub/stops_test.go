package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/fleet"
	"github.com/comfyhub/comfyhub/internal/job"
)

// What the operator pauses gets no further run, whichever hub was told, and says so; what
// runs goes on.
func TestPause(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		eventually(t, func() bool { return len(b.hub.fleet.Instances()) == 1 }, time.Minute, 5*time.Millisecond)
		instance := b.hub.fleet.Instances()[0].Name
		for name, c := range map[string]struct {
			stop   Stop
			reason string
		}{
			"everything": {StopAll, "the operator has paused the queue"},
			"a tenant":   {StopTenant(job.DefaultTenant), "the operator has paused your prompts"},
			"a server":   {StopInstance(instance), ""},
		} {
			for told, pause := range map[string]func(on bool) error{
				"here": func(on bool) error {
					if on {
						return b.hub.Operator().Pause(t.Context(), c.stop)
					}
					return b.hub.Operator().Resume(t.Context(), c.stop)
				},
				"at another hub": func(on bool) error {
					_, err := b.hub.queue.SetStop(t.Context(), c.stop, on)
					return err
				},
			} {
				t.Log(name, told)
				long := b.submit(endless(1), "ann")
				eventually(t, func() bool { return b.explain(long).State == "running" }, time.Minute, 5*time.Millisecond)
				require.NoError(t, pause(true))
				id := b.submit(picture(2), "bob")
				eventually(t, func() bool {
					i, _ := b.hub.fleet.Instance(instance)
					return b.explain(id).Reason == c.reason || c.reason == "" && i.State == fleet.Draining
				}, time.Minute, 5*time.Millisecond)
				require.Equal(t, "running", b.explain(long).State)
				if c.reason != "" {
					require.Nil(t, b.explain(id).ETA)
				}
				b.post("/interrupt", `{"prompt_id": "`+long+`"}`)
				eventually(t, func() bool { return b.explain(long).State == "cancelled" }, time.Minute, 5*time.Millisecond)
				require.Never(t, func() bool { return b.explain(id).State != "queued" }, 200*time.Millisecond, 10*time.Millisecond)
				require.Zero(t, b.hub.dispatch.Stuck())

				require.NoError(t, pause(false))
				eventually(t, func() bool { return b.explain(id).State == "done" }, time.Minute, 5*time.Millisecond)
			}
		}
		require.ErrorIs(t, b.hub.Operator().Pause(t.Context(), StopInstance("nobody")), ErrInstanceUnknown)
		require.ErrorIs(t, b.hub.Operator().Resume(t.Context(), StopInstance("nobody")), ErrInstanceUnknown)
	})
}

// An instance that was set aside is used again when the operator resumes it: at this hub, and
// at the others once they hear that it is not paused any more.
func TestResumeOfAnInstanceSetAside(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		eventually(t, func() bool { return len(b.hub.fleet.Instances()) == 1 }, time.Minute, 5*time.Millisecond)
		name := b.hub.fleet.Instances()[0].Name
		aside := func() bool {
			i, _ := b.hub.fleet.Instance(name)
			return i.Aside
		}
		b.hub.fleet.SetAside(name, "its runs come to nothing")
		require.True(t, aside())
		require.NoError(t, b.hub.Operator().Resume(t.Context(), StopInstance(name)))
		require.False(t, aside())
		b.hub.fleet.SetAside(name, "its runs come to nothing")
		for _, on := range []bool{true, false} {
			_, err := b.hub.queue.SetStop(t.Context(), StopInstance(name), on)
			require.NoError(t, err)
			<-time.After(2 * stopsEvery)
		}
		require.False(t, aside())
	})
}

// A run that goes on after the deadline of a drain runs elsewhere, also if the hub
// restarts before; a drain that is undone takes nothing back.
func TestDrainWithDeadline(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"one hub": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := newBench(t, 1)
				instance := b.hub.fleet.Instances()[0].Name
				id := b.submit(work(3600, 1, "none"), "ann")
				eventually(t, func() bool { return b.explain(id).State == "running" }, time.Minute, 5*time.Millisecond)
				require.NoError(t, b.hub.Operator().Drain(t.Context(), instance, time.Hour))
				require.NoError(t, b.hub.Operator().Drain(t.Context(), instance, 50*time.Millisecond))
				if restart {
					b.stop()
					b.start()
				}
				eventually(t, func() bool { return b.explain(id).State == "queued" }, time.Minute, 5*time.Millisecond)
				require.Zero(t, b.explain(id).Attempts)
				eventually(t, func() bool {
					i, known := b.hub.fleet.Instance(instance)
					return known && i.State == fleet.Draining && i.Report.Queue == 0
				}, time.Minute, 5*time.Millisecond)

				require.NoError(t, b.hub.Operator().Drain(t.Context(), instance, time.Hour))
				require.NoError(t, b.hub.Operator().Resume(t.Context(), StopInstance(instance)))
				eventually(t, func() bool { return b.explain(id).State == "running" }, time.Minute, 5*time.Millisecond)
				require.Equal(t, 1, b.explain(id).Attempts)
				b.post("/interrupt", `{"prompt_id": "`+id+`"}`)
				eventually(t, func() bool { return b.explain(id).State == "cancelled" }, time.Minute, 5*time.Millisecond)
				require.ErrorIs(t, b.hub.Operator().Drain(t.Context(), "nobody", time.Hour), ErrInstanceUnknown)
			})
		})
	}
}

// An instance that is gone is forgotten with its pause; one that somebody reports is not.
func TestForgetInstance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, 1)
		o := b.hub.Operator()
		present := b.hub.fleet.Instances()[0].Name
		require.ErrorIs(t, o.ForgetInstance(t.Context(), present), ErrInstancePresent)
		require.ErrorIs(t, o.ForgetInstance(t.Context(), "nobody"), ErrInstanceUnknown)

		report := fleet.Report{Agent: "box", Boot: 1, Seq: 1, Instances: []fleet.InstanceReport{{Name: "gone", URL: "http://127.0.0.1:1"}}}
		require.NoError(t, b.hub.fleet.Apply(report))
		require.NoError(t, o.Pause(t.Context(), StopInstance("gone")))
		require.ErrorIs(t, o.ForgetInstance(t.Context(), "gone"), ErrInstancePresent, "its agent reports it")
		b.hub.fleet.AgentLeft("box", 1, "")
		require.NoError(t, o.ForgetInstance(t.Context(), "gone"))
		_, known := b.hub.fleet.Instance("gone")
		require.False(t, known)
		stops, err := b.hub.queue.Stops(t.Context())
		require.NoError(t, err)
		require.Empty(t, stops)

		_, err = b.hub.queue.SetStop(t.Context(), StopInstance("long ago"), true)
		require.NoError(t, err)
		require.NoError(t, o.ForgetInstance(t.Context(), "long ago"), "only its pause is left")
		require.ErrorIs(t, o.ForgetInstance(t.Context(), "long ago"), ErrInstanceUnknown)
	})
}
