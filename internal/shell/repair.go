package shell

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/internal/redis"
)

func repairCommand() *cobra.Command {
	return &cobra.Command{
		Use: "repair-journal FOLDER", Short: "Cut the journal of the embedded queue where it is damaged",
		Long: `Cuts the journal queue.aof in the hub's data folder after the last record before the
damage, and keeps the whole file as queue.aof.damaged. What was stored after the damage is
lost. The hub must be stopped; it says when it needs this. A crash does not: what it tears
is cut by the hub itself. A journal that is well stays as it is.`,
	}
}

func runRepair(cmd *cobra.Command, args []string) error {
	kept, lost, err := redis.RepairJournal(args[0])
	if err != nil {
		return usagef("%w", err)
	}
	if lost == 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "the journal is well")
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%d bytes stay, and %d that follow the damage were cut off; queue.aof.damaged has all of it\n", kept, lost)
	return nil
}
