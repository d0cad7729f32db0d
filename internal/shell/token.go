package shell

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// machineToken is a token as the admin endpoint shows it. Issued is in Unix seconds.
type machineToken struct {
	Machine string `json:"machine"`
	Issued  int64  `json:"issued"`
}

// AddTokenCommands adds the commands about the tokens of machines to a parent.
func AddTokenCommands(parent *cobra.Command, o Options) {
	c := &commands{Options: o, parent: parent}
	c.flags(parent)
	c.addTokens(parent)
}

// addTokens makes a command the one about the tokens of machines.
func (c *commands) addTokens(group *cobra.Command) {
	group.Long = `A machine with a token runs "agent pull": it opens a tunnel to the hub's site,
and the hub uses its ComfyUI instances through it. add prints a new token of the
machine NAME, and an older one is no longer valid; revoke takes it away and
cuts its tunnels within half a minute; list shows which machines have one.`
	c.groups(group)
	one := func(n int) bool { return n == 1 }
	c.addTo(group, &cobra.Command{Use: "add NAME", Short: "Print a new token of a machine"}, one, c.operator(runTokenAdd))
	c.addTo(group, &cobra.Command{Use: "revoke NAME", Short: "Take the token of a machine away"}, one, c.operator(runTokenRevoke))
	list := &cobra.Command{Use: "list", Short: "Show which machines have a token"}
	list.Flags().Bool("json", false, "print the machines as JSON")
	c.addTo(group, list, func(n int) bool { return n == 0 }, c.operator(runTokenList))
}

func runTokenAdd(ctx context.Context, a *Admin, cmd *cobra.Command, args []string) error {
	var issued struct{ Token string }
	if err := a.ask(ctx, http.MethodPost, "tokens", url.Values{"machine": {args[0]}}, &issued); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), printable(issued.Token))
	return nil
}

func runTokenRevoke(ctx context.Context, a *Admin, cmd *cobra.Command, args []string) error {
	if err := a.ask(ctx, http.MethodDelete, "tokens", url.Values{"machine": {args[0]}}, nil); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "revoked the token of", printable(args[0]))
	return nil
}

func runTokenList(ctx context.Context, a *Admin, cmd *cobra.Command, _ []string) error {
	all := []machineToken{}
	if err := a.ask(ctx, http.MethodGet, "tokens", nil, &all); err != nil {
		return err
	}
	if asJSON(cmd) {
		return writeJSON(cmd.OutOrStdout(), all)
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MACHINE\tISSUED")
	for _, m := range all {
		fmt.Fprintf(table, "%s\t%s\n", printable(m.Machine), time.Unix(m.Issued, 0).Format(time.DateTime))
	}
	return table.Flush()
}
