package comfysim

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// The simulator is told what the agent was told, whatever is in it, and nothing else.
func TestArguments(t *testing.T) {
	t.Parallel()
	var told, heard Options
	agent := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	told.ServerFlags(agent, "")
	agent.String("log-level", "info", "")
	agent.String("count", "", "another's") // of another kind
	agent.String("join", "", "")
	require.Empty(t, Arguments(agent))
	require.NoError(t, agent.Parse([]string{
		"--join=hub", "--count=x", "--log-level=debug", "--port=7", "--step-time=1.5s", "--time-scale=0.1", "--model=loras/a b.pt", `--model="c/d,""e""",f/g`, "--fault=mute,zombie", "--vram=8GiB",
	}))
	list := Arguments(agent)
	require.NotContains(t, list, "--count=x")
	require.Contains(t, list, "--log-level=debug")

	simulator := pflag.NewFlagSet("comfysim", pflag.ContinueOnError)
	heard.AllFlags(simulator)
	require.NoError(t, simulator.Parse(list))
	told.Count, told.LogLevel = 1, "debug"
	require.Equal(t, told, heard)
	require.Equal(t, []string{"loras/a b.pt", `c/d,"e"`, "f/g"}, heard.Models)

	require.NoError(t, agent.Parse([]string{"--model="}))
	require.NoError(t, simulator.Parse(Arguments(agent)))
}
