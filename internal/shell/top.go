package shell

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const (
	// topJobs is how many jobs of each kind are read at each look.
	topJobs = 200
	// rateOver is the time over which rates are measured.
	rateOver = time.Minute
	// minInterval is the shortest pause between two looks.
	minInterval = 500 * time.Millisecond
)

func topCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "top", Short: "Show the fleet and the queue live, with keys to drain and cancel",
		Long: `Shows the fleet and the queue as they change. Keys:

  up, down, page up, page down   choose an instance or a job
  tab                            go to the other list
  d                              drain the chosen instance, or end its drain
  c                              cancel the chosen job, or what the chosen instance runs
  p                              pause the whole queue, or resume it
  q                              quit

Draining and pausing need the admin endpoint, like the commands of these names.`,
	}
	cmd.Flags().Duration("interval", time.Second, "`time` between two looks, at least 500ms")
	return cmd
}

func runTop(ctx context.Context, v view, cmd *cobra.Command) error {
	interval, err := cmd.Flags().GetDuration("interval")
	if err != nil || interval < minInterval {
		return usagef("--interval is at least %s", minInterval)
	}
	if !term.IsTerminal(int(os.Stdout.Fd())) {
		return usagef("top needs a terminal; scripts read \"status --json\"")
	}
	t := &top{ctx: ctx, view: v, interval: interval}
	_, err = tea.NewProgram(t, tea.WithContext(ctx), tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// pane is one of the two lists.
type pane int

const (
	instancePane pane = iota
	jobPane
)

// top is the fleet as it is shown, and what the user has chosen in it. It is the model of
// the terminal's event loop, which alone uses it.
type top struct {
	ctx      context.Context //nolint:containedctx // of the command; the event loop passes none
	view     view
	interval time.Duration

	fleet Fleet
	// at is when the fleet was read last, zero before; err is why it was not since.
	at    time.Time
	err   error
	ended []sample

	width, height int
	pane          pane
	// chosen is what is chosen in each pane, by name or id: it stays chosen where its row moves.
	chosen [2]string
	// asked is what y confirms; nil if nothing was asked.
	asked *action
	// said is what has become of the user's last command.
	said string
}

// sample is how many jobs had ended at a moment.
type sample struct {
	at    time.Time
	ended int64
}

// action is a command that the user has given.
type action struct {
	question string
	do       func(ctx context.Context) (said string, err error)
}

// The messages of the event loop.
type (
	tick   struct{}
	looked struct {
		fleet Fleet
		at    time.Time
		err   error
	}
	done struct {
		said string
		err  error
	}
)

// Init implements [tea.Model].
func (t *top) Init() tea.Cmd { return t.look }

// look reads the fleet.
func (t *top) look() tea.Msg {
	f, err := readFleet(t.ctx, t.view, topJobs)
	return looked{f, time.Now(), err}
}

// Update implements [tea.Model].
func (t *top) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		t.width, t.height = msg.Width, msg.Height
	case tick:
		return t, t.look
	case looked:
		if t.err = msg.err; msg.err == nil {
			t.take(msg.fleet, msg.at)
		}
		return t, tea.Tick(t.interval, func(time.Time) tea.Msg { return tick{} })
	case done:
		if t.said = msg.said; msg.err != nil {
			t.said = msg.err.Error()
		}
	case tea.KeyPressMsg:
		return t, t.press(msg.String())
	}
	return t, nil
}

// take takes in what was read.
func (t *top) take(f Fleet, at time.Time) {
	byNeed(f.Instances)
	t.fleet, t.at = f, at
	if f.Stats.Ended != nil {
		t.ended = append(t.ended, sample{at, *f.Stats.Ended})
		for len(t.ended) > 2 && at.Sub(t.ended[0].at) > rateOver {
			t.ended = t.ended[1:]
		}
	}
}

// rate is how many jobs end in a minute; false if that is not known.
func (t *top) rate() (float64, bool) {
	if len(t.ended) < 2 {
		return 0, false
	}
	first, last := t.ended[0], t.ended[len(t.ended)-1]
	if last.at.Sub(first.at) <= 0 || last.ended < first.ended {
		return 0, false
	}
	return float64(last.ended-first.ended) / last.at.Sub(first.at).Minutes(), true
}

// jobs are the rows of the list of jobs.
func (t *top) jobs() []FleetJob { return slices.Concat(t.fleet.Running, t.fleet.Queued) }

// keys are the names of a pane's rows.
func (t *top) keys(p pane) []string {
	var keys []string
	if p == instancePane {
		for _, i := range t.fleet.Instances {
			keys = append(keys, i.Name)
		}
		return keys
	}
	for _, j := range t.jobs() {
		keys = append(keys, j.ID)
	}
	return keys
}

// row is the index of what is chosen in a pane: the first row if that is gone.
func (t *top) row(p pane) int { return max(slices.Index(t.keys(p), t.chosen[p]), 0) }

// press does what a key is for.
func (t *top) press(key string) tea.Cmd {
	asked := t.asked
	t.asked, t.said = nil, ""
	switch key {
	case "q", "ctrl+c", "esc":
		if key != "esc" || asked == nil {
			return tea.Quit
		}
	case "y":
		if asked != nil {
			return t.start(asked)
		}
	case "tab", "left", "right":
		t.pane = 1 - t.pane
	case "up", "k":
		t.move(-1)
	case "down", "j":
		t.move(1)
	case "pgup":
		t.move(-10)
	case "pgdown":
		t.move(10)
	case "home":
		t.move(-len(t.keys(t.pane)))
	case "end":
		t.move(len(t.keys(t.pane)))
	case "d":
		return t.start(t.drain())
	case "c":
		t.asked = t.cancel()
	case "p":
		if a := t.pause(); a != nil && t.fleet.Stats.Paused {
			return t.start(a)
		} else if a != nil {
			t.asked = a
		}
	}
	return nil
}

func (t *top) move(by int) {
	keys := t.keys(t.pane)
	if len(keys) > 0 {
		t.chosen[t.pane] = keys[min(max(t.row(t.pane)+by, 0), len(keys)-1)]
	}
}

// start does something without waiting for it.
func (t *top) start(a *action) tea.Cmd {
	if a == nil {
		return nil
	}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(t.ctx, adminTimeout)
		defer cancel()
		said, err := a.do(ctx)
		return done{said, err}
	}
}

// operator is the admin endpoint, nil with a word to the user if this is a user's view.
func (t *top) operator() *Admin {
	a, is := t.view.(*Admin)
	if !is {
		t.said = "only the operator can do this: run top on the hub's machine, or give --address"
	}
	return a
}

// drain drains the chosen instance, or ends its drain.
func (t *top) drain() *action {
	keys := t.keys(instancePane)
	if t.pane != instancePane || len(keys) == 0 {
		t.said = "choose an instance first (tab)"
		return nil
	}
	a := t.operator()
	if a == nil {
		return nil
	}
	i := t.fleet.Instances[t.row(instancePane)]
	verb, said := "drain", "draining "+i.Name+"; d ends the drain"
	if i.State == "draining" {
		verb, said = "resume", "resumed "+i.Name
	}
	return &action{do: func(ctx context.Context) (string, error) {
		return said, a.ask(ctx, http.MethodPost, verb, url.Values{"instance": {i.Name}}, nil)
	}}
}

// cancel cancels the chosen job, or the one that the chosen instance runs.
func (t *top) cancel() *action {
	jobs := t.jobs()
	n := -1
	switch {
	case t.pane == jobPane && len(jobs) > 0:
		n = t.row(jobPane)
	case t.pane == instancePane && len(t.fleet.Instances) > 0:
		running := t.fleet.Instances[t.row(instancePane)].Running
		n = slices.IndexFunc(jobs, func(j FleetJob) bool { return running != "" && j.ID == running })
	}
	if n < 0 {
		t.said = "there is no job to cancel here"
		return nil
	}
	j := jobs[n]
	question := "cancel " + j.ID
	if j.Tenant != "" {
		question += " of " + j.Tenant
	}
	return &action{question: question, do: func(ctx context.Context) (string, error) {
		cancelled, err := t.view.cancelJob(ctx, j.Tenant, j.ID)
		if err == nil && !cancelled {
			return "it had ended before", nil
		}
		return "cancelled " + j.ID, err
	}}
}

// pause pauses the whole queue, or resumes it.
func (t *top) pause() *action {
	a := t.operator()
	if a == nil {
		return nil
	}
	verb, said := "pause", "paused everything; p resumes"
	if t.fleet.Stats.Paused {
		verb, said = "resume", "resumed everything"
	}
	return &action{question: fmt.Sprintf("pause all %d waiting jobs", t.fleet.Stats.Queued), do: func(ctx context.Context) (string, error) {
		return said, a.ask(ctx, http.MethodPost, verb, nil, nil)
	}}
}
