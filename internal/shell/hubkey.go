package shell

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

func hubKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "hub-key", Short: "Print the key by which agents know the hubs",
		Long: `Prints the key by which agents know the hubs of this fleet, which is no secret. An agent
takes it over from the first hub that calls; one that is started with --hub-key, or with
the variable COMFYHUB_AGENT_HUB_KEY, listens to no other from the beginning.`,
	}
}

func runHubKey(ctx context.Context, a *Admin, cmd *cobra.Command, _ []string) error {
	var answer struct {
		Key string `json:"key"`
	}
	if err := a.ask(ctx, http.MethodGet, "hub-key", nil, &answer); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), answer.Key)
	return nil
}
