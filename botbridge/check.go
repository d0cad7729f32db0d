package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/botbridge/internal/bridge"
	"github.com/comfyhub/comfyhub/botbridge/internal/config"
	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// askTimeout bounds what is asked of the chat platforms.
const askTimeout = 20 * time.Second

// errProblems says that a configuration would not work; what would not has been
// printed.
var errProblems = errors.New("there are problems")

var (
	errKey = errors.New("hub_key: the hub does not accept it")
	// errNobody is said once, not for each node of each workflow.
	errNobody = errors.New("hub: no ComfyUI server is online yet, so nobody knows whether the workflows would run: start an agent, or try again in a moment")
)

func checkCommand() *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use: "check bot.yaml", Short: "Show what a configuration means and what would not work", Args: cobra.ExactArgs(1),
		Long: "Shows which inputs of which nodes a message sets, marks what was guessed, and holds each workflow against\nthe nodes and models of the hub's fleet.",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Read(args[0])
			if err != nil {
				return report(cmd.OutOrStdout(), nil, nil, strings.Split(err.Error(), "\n"))
			}
			commands, err := c.Bind()
			problems := append(c.Problems(), err)
			ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
			defer cancel()
			names, more := bridge.Check(ctx, c, !offline)
			problems = append(problems, more...)
			if folder := c.LocaleFolder(); folder != "" {
				mistakes, notes := locale.Check(folder)
				for _, mistake := range mistakes {
					problems = append(problems, errors.New(mistake))
				}
				for _, note := range notes {
					fmt.Fprintln(cmd.OutOrStdout(), "note     ", note)
				}
			}
			for _, name := range names {
				fmt.Fprintf(cmd.OutOrStdout(), "the bot is %s\n", name)
			}
			var catalog *workflow.Catalog
			if !offline {
				if catalog, err = fetchCatalog(cmd, c); err != nil {
					problems = append(problems, err)
				}
			}
			return report(cmd.OutOrStdout(), commands, catalog, c.Placed(problems))
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "ask neither the hub nor the chat platforms")
	return cmd
}

// fetchCatalog asks the hub what the fleet has, and whether it accepts the bridge's key.
func fetchCatalog(cmd *cobra.Command, c *config.Config) (*workflow.Catalog, error) {
	key, err := c.HubKey.Read(c.Folder)
	if err != nil {
		return nil, nil // said already
	}
	client, err := hubapi.New(c.Hub, hubapi.Options{Key: key})
	if err != nil {
		return nil, nil // said already
	}
	defer client.Close()
	body, err := client.ObjectInfo(cmd.Context())
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	// A key counts only where a tenant is named. There is no such job.
	if _, err := client.Job(cmd.Context(), "telegram:0", "check"); errors.Is(err, hubapi.ErrDenied) {
		return nil, errKey
	}
	catalog, err := workflow.ParseCatalog(body)
	if err == nil && catalog.Empty() {
		return nil, errNobody
	}
	return catalog, err
}

// report prints what each command means; catalog is nil when nobody was asked.
func report(w io.Writer, commands []*workflow.Command, catalog *workflow.Catalog, problems []string) error {
	found := len(problems) > 0
	for _, c := range commands {
		fmt.Fprintf(w, "/%s  %s, %d nodes\n", c.Name, c.Spec.Workflow, c.Nodes())
		for _, r := range workflow.Roles() {
			slots, guessed := c.Bindings(r)
			if len(slots) == 0 {
				continue
			}
			var places []string
			for _, s := range slots {
				places = append(places, fmt.Sprintf("%s of node %s (%s)", s.Input, s.Node, c.Title(s.Node)))
			}
			note := ""
			if guessed {
				note = "  [guessed]"
			}
			fmt.Fprintf(w, "  %-9s %s%s\n", r, strings.Join(places, " and "), note)
		}
		for _, a := range c.Arguments() {
			printArgument(w, c, a, catalog)
		}
		printStyles(w, c)
		for _, note := range c.Notes() {
			fmt.Fprintf(w, "  note      %s\n", note)
		}
		if catalog == nil {
			continue
		}
		missing := c.Check(catalog)
		found = found || len(missing) > 0
		for _, problem := range missing {
			fmt.Fprintf(w, "  PROBLEM   %s: %s\n", c.Spec.Workflow, problem)
		}
		if len(missing) == 0 {
			fmt.Fprintln(w, "  ok        the fleet can run it")
		}
	}
	for _, problem := range problems {
		fmt.Fprintf(w, "PROBLEM  %s\n", problem)
	}
	if found {
		return errProblems
	}
	return nil
}

// printArgument prints a flag of a command, with what the fleet takes.
func printArgument(w io.Writer, c *workflow.Command, a workflow.Argument, catalog *workflow.Catalog) {
	note := ""
	if a.Found {
		note = "  [found]"
	}
	takes := ""
	d, err := c.Domain(a, catalog)
	switch {
	case err != nil:
	case d.Kind == workflow.OneOf:
		takes = fmt.Sprintf(", %d choices", len(d.Choices))
	case d.Kind == workflow.WholeNumber, d.Kind == workflow.AnyNumber:
		takes = fmt.Sprintf(", %s to %s", workflow.PlainNumber(d.Low), workflow.PlainNumber(d.High))
	default:
		takes = ", " + string(d.Kind)
	}
	fmt.Fprintf(w, "  %-9s %s of node %s (%s)%s%s\n", "--"+a.Name, a.Slot.Input, a.Slot.Node, c.Title(a.Slot.Node), takes, note)
}

// printStyles prints which styles a command has.
func printStyles(w io.Writer, c *workflow.Command) {
	var names []string
	for _, s := range c.Styles() {
		names = append(names, s.Name)
	}
	if len(names) > 0 {
		fmt.Fprintf(w, "  %-9s %s\n", "--style", strings.Join(names, ", "))
	}
}
