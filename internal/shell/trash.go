package shell

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// trashed is a name in the trash, as the admin endpoint tells it.
type trashed struct {
	ID        string `json:"id"`
	Tenant    string `json:"tenant"`
	Type      string `json:"type"`
	Subfolder string `json:"subfolder"`
	Filename  string `json:"filename"`
	Size      int64  `json:"size"`
	Why       string `json:"why"`
	// Since and Until are in Unix seconds.
	Since int64 `json:"since"`
	Until int64 `json:"until"`
}

// name is what the commands call it: input/fox.png.
func (t trashed) name() string {
	if t.Subfolder == "" {
		return t.Type + "/" + t.Filename
	}
	return strings.Join([]string{t.Type, t.Subfolder, t.Filename}, "/")
}

func trashCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "trash", Short: "List files that were overwritten or removed lately, and take them back",
		Long: `For a week, the hub keeps uploads that were overwritten, and files that it has removed
because of their age. What was removed because it took too much room is gone.`,
	}
	cmd.PersistentFlags().String("tenant", "", "only files of this tenant")
	return cmd
}

func trashListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List them, the newest first"}
	cmd.Flags().Bool("json", false, "print them as JSON")
	cmd.Flags().Int("limit", 100, "how many")
	return cmd
}

func trashRestoreCommand() *cobra.Command {
	return &cobra.Command{
		Use: "restore NAME|ID...", Short: "Take files back",
		Long: `Takes files back by their ids, or by their names (input/fox.png): then the newest of that
name. An upload that has the name now goes to the trash instead. History entries do not
come back.`,
	}
}

// readTrash reads the newest names in the trash, and how many there are.
func readTrash(ctx context.Context, a *Admin, cmd *cobra.Command, limit int) (shown []trashed, all int, err error) {
	tenant, err := cmd.Flags().GetString("tenant")
	if err != nil {
		return nil, 0, err
	}
	var told struct {
		All   int
		Trash []trashed
	}
	err = a.ask(ctx, http.MethodGet, "trash", url.Values{"tenant": {tenant}, "limit": {strconv.Itoa(limit)}}, &told)
	return told.Trash, told.All, err
}

func runTrashList(ctx context.Context, a *Admin, cmd *cobra.Command, _ []string) error {
	limit, err := cmd.Flags().GetInt("limit")
	if err != nil || limit < 1 {
		return usagef("--limit must be a positive number")
	}
	shown, all, err := readTrash(ctx, a, cmd, limit)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if asJSON(cmd) {
		return writeJSON(out, shown)
	}
	if all == 0 {
		fmt.Fprintln(out, "there is nothing in the trash")
		return nil
	}
	t := &table{}
	t.add("ID", "TENANT", "FILE", "BYTES", "WHY", "SINCE", "KEPT FOR")
	now := time.Now()
	for _, s := range shown {
		t.add(s.ID, s.Tenant, s.name(), strconv.FormatInt(s.Size, 10), s.Why, short(now.Sub(time.Unix(s.Since, 0)))+" ago", short(time.Unix(s.Until, 0).Sub(now)))
	}
	for _, line := range t.lines(newScreen(out).width()) {
		fmt.Fprintln(out, line)
	}
	if more := all - len(shown); more > 0 {
		fmt.Fprintf(out, "... and %d older ones: --limit shows them\n", more)
	}
	return nil
}

// mostTrash is how many names are looked at to find one.
const mostTrash = 100_000

func runTrashRestore(ctx context.Context, a *Admin, cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		all, _, err := readTrash(ctx, a, cmd, mostTrash) // it changes with each one taken back
		if err != nil {
			return err
		}
		t, err := inTrash(all, arg)
		if err != nil {
			return err
		}
		if err := a.ask(ctx, http.MethodPost, "trash", url.Values{"tenant": {t.Tenant}, "id": {t.ID}}, nil); err != nil {
			return fmt.Errorf("%s: %w", printable(arg), err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s of %s is back\n", printable(t.name()), printable(t.Tenant))
	}
	return nil
}

// inTrash finds what an argument means: an id, or the newest of a name.
func inTrash(all []trashed, arg string) (trashed, error) {
	var found *trashed
	for n, t := range all {
		switch {
		case t.ID == arg:
			return t, nil
		case t.name() != arg:
		case found == nil:
			found = &all[n]
		case found.Tenant != t.Tenant:
			return trashed{}, &coded{ExitFailed, fmt.Errorf("several tenants have had %s: choose one with --tenant, or name an id", printable(arg))}
		}
	}
	if found == nil {
		return trashed{}, &coded{ExitFailed, fmt.Errorf("%s is not in the trash", printable(arg))}
	}
	return *found, nil
}
