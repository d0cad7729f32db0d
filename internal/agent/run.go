package agent

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/internal/comfysim"
	"github.com/comfyhub/comfyhub/internal/gossip"
)

func newRunCommand() *cobra.Command {
	var (
		c         config
		servers   []string
		a1111     []string
		direct    []string
		gpus      []string
		keyFile   string
		hubKey    string
		state     string
		simulate  int
		simulator *comfysim.Process
		simulated comfysim.Options
	)
	cmd := &cobra.Command{
		Use:   "run --join HUB:7946 --comfyui http://127.0.0.1:8188",
		Short: "Bring this machine's ComfyUI and A1111 instances into the fleet",
		Example: "  agent run --join hub:7946 --comfyui http://127.0.0.1:8188 --key-file /etc/comfyhub/key\n" +
			"  agent run --join hub:7946 --comfyui left=http://127.0.0.1:3188 --comfyui right=http://127.0.0.1:3189\n" +
			"  agent run --join 127.0.0.1:7946 --simulate 3",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := fromEnvironment(cmd, os.LookupEnv)
			if err != nil {
				return err
			}
			if c.logger, err = newLogger(cmd); err != nil {
				return err
			}
			if err := gossip.CheckName(c.name); err != nil {
				return fmt.Errorf("--name: %w", err)
			}
			if len(c.join) == 0 {
				return errors.New("--join: which hub? HOST:7946")
			}
			if c.key, err = readKey(keyFile, os.LookupEnv); err != nil {
				return err
			}
			if c.identity, err = identity(c.name, c.key, state, os.LookupEnv); err != nil {
				return err
			}
			if c.hubPin, err = hubPin(c.name, c.key, hubKey, state, c.logger, os.LookupEnv); err != nil {
				return err
			}
			if simulate > 0 {
				if len(servers) > 0 {
					return errors.New("--simulate and --comfyui exclude each other")
				}
				// The servers outlive the first signal: their runs are waited for.
				if simulator, err = comfysim.Start(simulate, comfysim.Arguments(cmd.Flags()), cmd.ErrOrStderr()); err != nil {
					return err
				}
				defer func() { _ = simulator.Stop() }()
				servers, c.simulated = simulator.URLs, true
			}
			if c.targets, err = targets(c.name, servers, direct, a1111); err != nil {
				return err
			}
			if err := onGPUs(c.targets, gpus); err != nil {
				return err
			}
			if err := c.machine.place(c.targets, len(servers)); err != nil {
				return err
			}
			if c.state, err = lasting(&c.machine, state, os.LookupEnv); err != nil {
				return err
			}
			c.version = version()
			hurry, stop := secondSignal()
			defer stop()
			c.hurry = hurry
			growHeap()
			if simulator == nil {
				return c.run(cmd.Context())
			}
			return withSimulator(cmd.Context(), simulator, stop, c.run)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.join, "join", nil, "`address` of a hub's gossip, HOST:7946; can be repeated")
	f.StringSliceVar(&servers, "comfyui", nil, "`URL` of a ComfyUI, or NAME=URL; can be repeated (default: those at the usual ports of this machine)")
	f.StringSliceVar(&a1111, "a1111", nil, "`URL` of an A1111 instance (started with --api), or NAME=URL; can be repeated")
	f.StringSliceVar(&direct, "direct", nil, "`URL` at which hubs may reach an instance themselves; one for each --comfyui")
	f.StringSliceVar(&gpus, "gpu", nil, "`name` of the GPU that an instance uses; one for each --comfyui, then for each --a1111. Instances with the same name share its memory; a name such as GPU-8f1c… is the driver's own and holds for all agents (default: the driver's, where the agent finds out which one it is)")
	f.StringVar(&c.name, "name", hostName(), "`name` of this agent, unique in the fleet")
	f.StringVar(&c.bind, "bind", "", "`address` of the gossip, UDP and TCP (default :7946; a free port of loopback when joined over loopback)")
	f.StringVar(&c.advertise, "advertise", "", "`address` at which the hubs reach --bind, where it is another")
	f.StringVar(&c.serve, "serve", "", "`address` at which the hubs reach the instances (default :7947; loopback when joined over loopback)")
	f.StringVar(&keyFile, "key-file", "", "`file` with the gossip key; several on a line each while it is changed, the first is used (default: the variable "+keyVariable+")")
	f.StringVar(&hubKey, "hub-key", "", "`key` by which the agent knows its hubs, as \"comfyhub hub-key\" prints it (default: that of the first hub which calls and has the gossip key)")
	f.StringVar(&state, "state", "", "`folder` for the agent's own key, by which hubs know it, for the key by which it knows them, and for what it must remember of --output-dir (default: STATE_DIRECTORY of systemd, else comfyhub-agent in the user's configuration folder; none without a gossip key)")
	c.machine.flags(f)
	f.DurationVar(&c.stopTimeout, "stop-timeout", time.Minute, "`time` for which an agent that is asked to stop waits for the runs of its instances; it gets no new ones, and a second signal stops it at once")
	f.IntVar(&simulate, "simulate", 0, "bring in this `number` of simulated instances instead")
	simulated.ServerFlags(f, "first `port` of the simulated instances; others where they are taken")
	return cmd
}
