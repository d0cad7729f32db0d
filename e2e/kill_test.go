package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
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
