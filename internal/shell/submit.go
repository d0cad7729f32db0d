package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// submission is the command submit.
type submission struct {
	sets, files     []string
	priority        int
	band, key, out  string
	wait, force     bool
	asJSON          bool
	cancelIfStopped bool
}

func (s *submission) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "submit WORKFLOW.json [--set 6.text=\"a fox\"] [--wait] [--out DIR]",
		Short: "Submit a workflow, and wait for what it makes",
		Long: `Submits a workflow ("-" reads it from standard input) and prints the id of the
job. --wait waits until it has ended, and prints its files; --out waits, too, and
stores them.

Ctrl-C while it waits leaves the job in the queue or running, unless
--cancel-on-interrupt is given.

Exit codes: 0 done (without --wait: accepted), 1 failed or refused, 2 usage,
3 cancelled, 4 the hub cannot be reached or files could not be stored,
130 interrupted.`,
		Example: `  comfyhub submit workflow_api.json --set 6.text="a fox" --set 3.seed=7 --out pictures
  comfyhub submit portrait.json --file 10.image=cat.png --wait`,
	}
	f := cmd.Flags()
	f.StringArrayVar(&s.sets, "set", nil, "`NODE.INPUT=VALUE`: change an input; NODE is an id or a title, := takes JSON; repeatable")
	f.StringArrayVar(&s.files, "file", nil, "`NODE.INPUT=FILE`: send a file with the job as an input; repeatable")
	f.IntVar(&s.priority, "priority", 0, "-100 to 100, higher first among your own jobs")
	f.StringVar(&s.band, "band", "", "interactive, normal or bulk")
	f.StringVar(&s.key, "key", "", "idempotency `key`: a job with the key of an earlier one is not run again")
	f.BoolVar(&s.wait, "wait", false, "wait until the job has ended")
	f.StringVar(&s.out, "out", "", "`folder` in which the files are stored; implies --wait")
	f.BoolVar(&s.force, "force", false, "replace files that are there")
	f.BoolVar(&s.asJSON, "json", false, "print the job as JSON")
	f.BoolVar(&s.cancelIfStopped, "cancel-on-interrupt", false, "cancel the job when interrupted while waiting")
	return cmd
}

// order makes the body of the request.
func (s *submission) order(name string, in io.Reader) ([]byte, error) {
	data, err := readFile(name, in)
	if err != nil {
		return nil, err
	}
	w, err := readWorkflow(data)
	if err != nil {
		return nil, err
	}
	for _, change := range s.sets {
		if err := w.set(change); err != nil {
			return nil, err
		}
	}
	for _, change := range s.files {
		if err := w.embed(change); err != nil {
			return nil, err
		}
	}
	key := s.key
	if key == "" {
		key = uuid.NewString()
	}
	return w.order(s.priority, s.band, key), nil
}

func (s *submission) run(ctx context.Context, c *Client, cmd *cobra.Command, args []string) error {
	order, err := s.order(args[0], cmd.InOrStdin())
	if err != nil {
		return err
	}
	var folder *Folder
	if s.out != "" { // before the job: what it makes must have a place
		if folder, err = OpenFolder(s.out, s.force); err != nil {
			return err
		}
		defer folder.Close()
	}
	j, err := c.Submit(ctx, order)
	if err != nil {
		if ctx.Err() != nil {
			return &coded{ExitInterrupted, errors.New("interrupted; the hub may have accepted the job")}
		}
		return err
	}
	if !s.wait && folder == nil {
		if s.asJSON {
			fmt.Fprintln(cmd.OutOrStdout(), string(j.Raw))
		} else {
			fmt.Fprintln(cmd.OutOrStdout(), printable(j.ID))
		}
		return nil
	}
	screen := newScreen(cmd.ErrOrStderr())
	screen.say("job %s", printable(j.ID))
	ended, err := c.Follow(ctx, j.ID, screen.show)
	screen.end()
	switch {
	case ctx.Err() != nil && err != nil:
		return s.interrupted(ctx, c, screen, j.ID)
	case err != nil:
		return fmt.Errorf("job %s: %w", printable(j.ID), err)
	}
	if s.asJSON {
		fmt.Fprintln(cmd.OutOrStdout(), string(ended.Raw))
	}
	if err := s.deliver(ctx, c, cmd, folder, ended); err != nil {
		return err
	}
	return verdict(ended)
}

// interrupted ends a command whose user does not want to wait any more.
func (s *submission) interrupted(ctx context.Context, c *Client, screen *screen, id string) error {
	if !s.cancelIfStopped {
		screen.say("interrupted; the job goes on. To see it: logs -f %[1]s; to cancel it: cancel %[1]s", printable(id))
		return &coded{ExitInterrupted, errShown}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	cancelled, status, err := c.Cancel(ctx, id)
	switch {
	case err != nil:
		return &coded{ExitInterrupted, fmt.Errorf("interrupted, and the job is not cancelled: %w", err)}
	case cancelled: // its run may take a moment to end
		status = StatusCancelled
	}
	screen.say("interrupted; the job is %s", printable(status))
	return verdict(Job{Status: status})
}

// deliver stores or names the files of a job.
func (s *submission) deliver(ctx context.Context, c *Client, cmd *cobra.Command, folder *Folder, j Job) error {
	failed := false
	for _, f := range j.Files() {
		if folder == nil {
			if !s.asJSON {
				fmt.Fprintln(cmd.OutOrStdout(), printable(f.URL))
			}
			continue
		}
		stored, err := folder.Store(f, func() (io.ReadCloser, error) { return c.Open(ctx, f) })
		if err != nil {
			failed = true
			fmt.Fprintln(cmd.ErrOrStderr(), "comfyhub:", err)
			continue
		}
		if !s.asJSON {
			fmt.Fprintln(cmd.OutOrStdout(), printable(stored))
		}
	}
	switch {
	case failed && ctx.Err() != nil:
		return &coded{ExitInterrupted, fmt.Errorf("interrupted; the files of job %s stay at the hub", printable(j.ID))}
	case failed:
		return &coded{ExitUnknown, errShown}
	}
	return nil
}
