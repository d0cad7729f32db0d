package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/programs"
)

// Ten jobs wait and two run when the hub is killed: the next hub finishes all
// twelve, and the running ones go on where they were.
func TestKillTheHub(t *testing.T) {
	t.Parallel()
	for name, redis := range map[string]func(*testing.T) string{
		"redis":    func(t *testing.T) string { return redistest.Start(t).URL() },
		"embedded": func(*testing.T) string { return "embedded" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, redis(t))
			f.startHub()
			f.startAgent("gpu", 2)
			f.idle(2)
			var ids []string
			for n := range 12 {
				ids = append(ids, f.submit(15, n))
			}
			f.running(2)
			f.Hub.Kill()
			f.startHub()
			f.succeeded(ids)
			f.attemptsOf(ids, 1)
		})
	}
}

// A machine goes down with a job: another machine does it.
func TestKillAnAgentsMachine(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.startHub()
	doomed := f.startAgent("doomed", 1)
	f.idle(1)
	id := f.submit(30, 1)
	f.running(1)
	doomed.Kill()
	f.startAgent("spare", 1)
	f.succeeded([]string{id})
	f.attemptsOf([]string{id}, 2)
}

// A machine is taken out of service with a run: that is finished first.
func TestStopAnAgent(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.startHub()
	agent := f.startAgent("gpu", 1, "--stop-timeout", "1m")
	f.idle(1)
	id := f.submit(30, 1)
	f.running(1)
	agent.Stop()
	f.succeeded([]string{id})
	f.attemptsOf([]string{id}, 1)
	require.Contains(t, agent.Log(), "waiting for running prompts")
}

// Agents and hub find each other again in any order.
func TestRestartsInAnyOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	agent := f.startAgent("gpu", 1) // before the hub
	f.startHub()
	f.idle(1)
	f.Hub.Kill()
	f.startHub()
	f.idle(1)
	agent.Kill()
	f.startAgent("gpu", 1)
	f.idle(1)
	f.succeeded([]string{f.submit(1, 1)})
}

// The agent dies while its ComfyUI lives, and another agent of the same name
// takes over at another port: the run goes on and does not start again. The
// other agent is started beforehand. The hub waits 15 s for an instance during
// a run, but a silent agent keeps its name for 6 s of that, and the rest may be
// too short for a start on a busy machine.
func TestKillAnAgentWhoseInstanceLives(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "embedded")
	f.startHub()
	instance := f.simulate("alone")
	run := func() *programs.Program {
		return f.agent("gpu", "run", "--join", f.Gossip, "--name", "gpu", "--comfyui", instance)
	}
	agent := run()
	f.idle(1)
	id := f.submit(40, 1)
	f.running(1)
	run()
	agent.Kill()
	f.succeeded([]string{id})
	f.attemptsOf([]string{id}, 1)
}
