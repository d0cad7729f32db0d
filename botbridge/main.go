// Command botbridge lets people make pictures from a chat: it takes messages
// from Telegram, Discord or a program of one's own to a ComfyHub hub, and the
// pictures back. See docs/bot.md.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "botbridge:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	var level string
	cmd := &cobra.Command{
		Use: "botbridge", Short: "Pictures from a chat message, made by a ComfyHub fleet",
		SilenceUsage: true, SilenceErrors: true,
	}
	cmd.PersistentFlags().StringVar(&level, "log-level", "info", "`level` of the log: debug, info, warn, error")
	logger := func() (*slog.Logger, error) {
		var l slog.Level
		if err := l.UnmarshalText([]byte(level)); err != nil {
			return nil, fmt.Errorf("--log-level: %w", err)
		}
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
	}
	cmd.AddCommand(runCommand(logger), checkCommand())
	return cmd
}
