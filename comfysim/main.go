// Command comfysim runs simulated ComfyUI servers, or A1111 servers, which need no GPU: package
// internal/sim says what they do. "agent simulate" and "agent run --simulate" start it.
//
//	comfysim --count 3 --port 3188
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		// An agent that has started it gives it a name of two words.
		name, _, _ := strings.Cut(filepath.Base(os.Args[0]), " ")
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		stop()
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var s simulation
	cmd := &cobra.Command{
		Use:     "comfysim --count 3 --port 3188",
		Short:   "Runs simulated ComfyUI servers",
		Long:    "Runs simulated ComfyUI servers, or A1111 servers, on consecutive ports of loopback, until interrupted.\nThey need no GPU, answer as the real ones do, and paint pictures instead of sampling them.",
		Example: "  comfysim --count 3 --port 3188 --time-scale 0.1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var level slog.Level
			if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
				return fmt.Errorf("--log-level: %w", err)
			}
			s.logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			ctx := cmd.Context()
			if s.UntilEOF {
				ctx = untilEOF(ctx, cmd.InOrStdin())
			}
			stop, urls, err := s.start(ctx)
			if err != nil {
				return err
			}
			defer stop()
			for _, u := range urls {
				fmt.Fprintln(cmd.OutOrStdout(), u)
			}
			<-ctx.Done()
			return nil
		},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	s.AllFlags(cmd.Flags())
	return cmd
}

// untilEOF returns a context that ends when a reader does, and not with its parent.
func untilEOF(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, r)
	}()
	return ctx
}
