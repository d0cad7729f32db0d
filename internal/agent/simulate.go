package agent

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/internal/comfysim"
)

func newSimulateCommand() *cobra.Command {
	var o comfysim.Options
	cmd := &cobra.Command{
		Use:     "simulate --count 3 --port 3188",
		Short:   "Run simulated ComfyUI instances",
		Long:    "Run simulated ComfyUI instances, or A1111 instances, on consecutive ports of loopback, until interrupted.\nThey need no GPU, answer as the real ones do, and paint pictures instead of sampling them.",
		Example: "  agent simulate --count 3 --port 3188 --time-scale 0.1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd, os.LookupEnv); err != nil {
				return err
			}
			if _, err := newLogger(cmd); err != nil {
				return err
			}
			return comfysim.Become(cmd.Context(), comfysim.Arguments(cmd.Flags()), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.Flags(cmd.Flags())
	return cmd
}

// withSimulator runs an agent. If its simulator ends before, the agent ends at once, too: its
// servers do not come back.
func withSimulator(ctx context.Context, simulator *comfysim.Process, hurry func(), run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	returned := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-simulator.Ended():
			hurry()
			cancel()
		case <-returned:
		}
	})
	err := run(ctx)
	close(returned)
	watch.Wait()
	select {
	case <-simulator.Ended():
		return errors.New("the simulator has ended, and with it the simulated servers")
	default:
		return err
	}
}
