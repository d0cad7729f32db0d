package shell

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

func adoptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "adopt-storage [--yes]", Short: "Give the storage to the Redis that the hub has now",
		Long: `Gives the storage to the Redis that the hub has now, where "check" says that they do not
belong together. Without --yes it only says what would happen. If the hub has the wrong
Redis or the wrong storage, correct that instead: then nothing is lost.`,
	}
	cmd.Flags().Bool("yes", false, "do it")
	return cmd
}

func runAdopt(ctx context.Context, a *Admin, cmd *cobra.Command, _ []string) error {
	var told struct {
		Strangers      string
		Files, Unnamed int
	}
	if err := a.ask(ctx, http.MethodGet, "adopt-storage", nil, &told); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if told.Strangers == "" {
		fmt.Fprintln(out, "the storage belongs to the hub's Redis already")
		return nil
	}
	fmt.Fprintln(out, printable(told.Strangers))
	fmt.Fprintf(out, "of %d files that were looked at, Redis does not know %d\n", told.Files, told.Unnamed)
	if yes, _ := cmd.Flags().GetBool("yes"); !yes {
		fmt.Fprintln(out, `with --yes, the storage belongs to the hub's Redis from now on:
  all hubs of this Redis delete again, within a minute, what is due
  files that Redis does not know are deleted a week later, see docs/storage.md#redis-and-storage-do-not-match
  hubs of another Redis that have this storage delete nothing from it any more
nothing was changed`)
		return nil
	}
	if err := a.ask(ctx, http.MethodPost, "adopt-storage", nil, nil); err != nil {
		return err
	}
	fmt.Fprintln(out, "the storage belongs to the hub's Redis now")
	return nil
}
