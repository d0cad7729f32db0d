package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/internal/retry"
)

// asJSON reads the flag of commands that print something.
func asJSON(cmd *cobra.Command) bool {
	on, err := cmd.Flags().GetBool("json")
	return err == nil && on
}

// writeJSON writes one line.
func writeJSON(out io.Writer, v any) error { return json.NewEncoder(out).Encode(v) }

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status [ID]", Short: "Show the fleet in one screen, or a job and its files",
		Long: `Without an id, shows the fleet, the queue and the instances, those with problems
first: to the operator by the admin endpoint (--address, default: the one of this
machine if a hub answers there), else to a user by the hub's URL.

With an id, shows your job with the URLs of its files. With --address or --tenant, or if
you have no such job at the hub of this machine, the operator sees anybody's, with its
instance, attempts and error. The exit code is 0 whatever has become of the job, 1 if
there is no such job.`,
	}
	tenantFlag(cmd)
	cmd.Flags().Bool("json", false, "print the fleet or the job as JSON")
	cmd.Flags().Bool("all", false, "show all instances")
	cmd.Flags().Bool("watch", false, "show the fleet again every second, until Ctrl-C")
	return cmd
}

func runFleetStatus(ctx context.Context, v view, cmd *cobra.Command) error {
	all, err := cmd.Flags().GetBool("all")
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if watch, _ := cmd.Flags().GetBool("watch"); watch {
		screen := newScreen(out)
		if asJSON(cmd) || screen.width() == 0 {
			return usagef("--watch needs a terminal; scripts read \"status --json\"")
		}
		return screen.watch(ctx, v, all)
	}
	f, err := readFleet(ctx, v, shortList)
	if err != nil {
		return err
	}
	if asJSON(cmd) {
		byNeed(f.Instances)
		return writeJSON(out, f)
	}
	f.show(out, all, newScreen(out).width(), time.Now())
	return nil
}

func runStatus(ctx context.Context, c *Client, cmd *cobra.Command, id string) error {
	j, err := c.Status(ctx, id)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if asJSON(cmd) {
		fmt.Fprintln(out, string(j.Raw))
		return nil
	}
	fmt.Fprintln(out, j)
	for _, f := range j.Files() {
		fmt.Fprintln(out, printable(f.URL))
	}
	return nil
}

func cancelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a job that waits or runs",
		Long: `Cancels your job. With --address or --tenant, or if you have no such job at the hub of
this machine, it is the operator who cancels anybody's. A run is interrupted, which can
take a moment. A job that has ended stays as it is; that is exit code 1, unless it was
cancelled before.`,
	}
	tenantFlag(cmd)
	return cmd
}

// runCancel cancels a job by either a hub's URL or its admin endpoint.
func runCancel(cmd *cobra.Command, cancel func() (cancelled bool, status string, err error)) error {
	cancelled, status, err := cancel()
	if err != nil {
		return err
	}
	if !cancelled && status != StatusCancelled {
		return &coded{ExitFailed, fmt.Errorf("the job has ended: %s", printable(status))}
	}
	fmt.Fprintln(cmd.OutOrStdout(), StatusCancelled)
	return nil
}

// pollPause is the pause between two looks at the user's jobs.
const pollPause = 2 * time.Second

// logs is the command logs.
type logs struct{ follow bool }

func (l *logs) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "logs [-f] [ID]", Short: "Show what happens to a job, or to all of yours",
		Long: `Shows a job, or your jobs: those that wait and run, and those that have ended,
the newest last. With -f it goes on: for one job until it has ended, with the exit
code of "submit --wait"; for all until Ctrl-C, a line for each change.`,
	}
	cmd.Flags().BoolVarP(&l.follow, "follow", "f", false, "go on showing changes")
	return cmd
}

func (l *logs) run(ctx context.Context, c *Client, cmd *cobra.Command, args []string) error {
	screen := newScreen(cmd.OutOrStdout())
	if len(args) == 0 {
		screen.width = func() int { return 0 } // several jobs have a line each
		return l.all(ctx, c, screen)
	}
	if !l.follow {
		j, err := c.Status(ctx, args[0])
		if err == nil {
			screen.width = func() int { return 0 }
			screen.show(j)
		}
		return err
	}
	j, err := c.Follow(ctx, args[0], screen.show)
	screen.end()
	if err != nil {
		return err
	}
	return verdict(j)
}

// all shows all jobs of the user.
func (l *logs) all(ctx context.Context, c *Client, screen *screen) error {
	shown, tag, heard := map[string]string{}, "", time.Now()
	for {
		jobs, newTag, err := c.Jobs(ctx, tag)
		var refusal *Refusal
		switch {
		case err == nil:
			heard, tag = time.Now(), newTag
		case !l.follow || ctx.Err() != nil || time.Since(heard) > patience:
			return err
		case errors.As(err, &refusal) && refusal.Status < 500 && refusal.Status != http.StatusTooManyRequests:
			return err
		}
		if jobs != nil {
			shown = showChanges(screen, shown, jobs)
		}
		if !l.follow {
			return nil
		}
		if !retry.Sleep(ctx, pollPause) {
			return ctx.Err()
		}
	}
}

// showChanges shows the jobs that are not as they were, the newest last, and returns all as
// they are.
func showChanges(screen *screen, shown map[string]string, jobs []Job) map[string]string {
	now := make(map[string]string, len(jobs))
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Created, b.Created) })
	for _, j := range jobs {
		j.Status, j.Position = plainStatus(j.Status), nil // one that leaves would change them all
		now[j.ID] = screen.plain(j)
		if shown[j.ID] != now[j.ID] {
			screen.show(j)
		}
	}
	return now
}

// plainStatus is a status of /hub/jobs as the plain job API has it.
func plainStatus(status string) string {
	switch status {
	case "running", "leased":
		return StatusProcessing
	case "done":
		return StatusCompleted
	}
	return status
}
