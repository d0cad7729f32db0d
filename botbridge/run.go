package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/botbridge/internal/bridge"
	"github.com/comfyhub/comfyhub/botbridge/internal/config"
)

func runCommand(logger func() (*slog.Logger, error)) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "run --config bot.yaml", Short: "Run the bridge", Args: cobra.NoArgs,
		Example: "  COMFYHUB_BOT_TOKEN=123:abc botbridge run --config examples/bot/bot.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logger()
			if err != nil {
				return err
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			b, err := bridge.New(cmd.Context(), c, log, nil)
			if err != nil {
				return err
			}
			return b.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&path, "config", "bot.yaml", "configuration `file`")
	return cmd
}
