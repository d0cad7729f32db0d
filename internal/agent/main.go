package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/internal/comfysim"
)

// Main is the command.
func Main() {
	if isService, err := asService(); isService || err != nil {
		if err != nil {
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		stop()
		if said, ok := errors.AsType[comfysim.ExitError](err); ok {
			os.Exit(max(said.Code, 1))
		}
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "agent",
		Short: "Brings the ComfyUI instances of a GPU machine into a ComfyHub fleet",
		Long: "Brings the ComfyUI instances of a GPU machine into a ComfyHub fleet.\n\n" +
			"Every flag can also be given as an environment variable: --log-level is\n" +
			envPrefix + "LOG_LEVEL. Flags that can be repeated take a list with commas there.",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().String("log-level", "info", "`level` of the log: debug, info, warn, error")
	root.AddCommand(newRunCommand(), newPullCommand(), newSimulateCommand())
	root.AddCommand(platformCommands()...)
	return root
}

// newLogger returns the logger of a command, which writes to standard error.
func newLogger(cmd *cobra.Command) (*slog.Logger, error) {
	text, err := cmd.Flags().GetString("log-level")
	if err != nil {
		return nil, err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level})), nil
}

// heapGrowth is by how many percent the heap of an agent grows before it is collected,
// unless GOGC says otherwise. What it keeps takes few megabytes, so that with Go's own
// 100 it would be collected many times a second while prompts are short.
const heapGrowth = 400

// growHeap sets that.
func growHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}

// version is the module's, as stamped by the Go command.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
