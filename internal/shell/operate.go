package shell

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/internal/retry"
)

// operation is a command of the operator: one request to the admin endpoint for each instance that it
// is about.
type operation struct {
	verb     string
	tenant   string
	agent    string
	deadline string
	wait     bool
	yes      bool
}

// about says what the argument of a command may be.
const about = `INSTANCE is the name of an instance, of a machine with several, or a pattern such as
'studio-*'. If several are meant, or if work is interrupted, the command asks first;
--yes answers.

`

func (o *operation) command() *cobra.Command {
	cmd := map[string]*cobra.Command{
		"drain": {
			Use: "drain INSTANCE [--deadline 10m] [--wait]", Short: "Let an instance finish its run and give it no other",
			Long: about + `Lets an instance finish its run and gives it no other, until "resume INSTANCE".
With --deadline, what still runs there then is interrupted and runs elsewhere; it
keeps its place and all its attempts. With --wait the command returns once nothing
runs there any more: the machine can be switched off. Ctrl-C ends the command, not
the drain.`,
		},
		"pause": {
			Use: "pause [INSTANCE | --tenant NAME]", Short: "Give out no further job: none at all, none of a tenant, or none to an instance",
			Long: about + "Gives out no further job, until \"resume\" with the same argument. Prompts are still\naccepted, and what runs goes on.",
		},
		"resume": {
			Use: "resume [INSTANCE | --tenant NAME]", Short: "Undo pause and drain",
			Long: about + "Undoes \"pause\" or \"drain\" with the same argument. An instance that was set aside because\nits runs come to nothing is used like any other again.",
		},
		"forget": {
			Use: "forget INSTANCE | --agent NAME", Short: "Take an instance that is gone from the list, or free the name of an agent",
			Long: about + "Takes an instance that is gone from the list, where it would stay for a day; or frees the\nname of an agent that is gone, for an agent with another key.",
		},
		"restart": {
			Use: "restart INSTANCE", Short: "Have an instance's agent start ComfyUI anew",
			Long: about + "Has the agent of an instance start its ComfyUI anew, which takes --restart-command at the\nagent. What runs there begins again elsewhere.",
		},
	}[o.verb]
	f := cmd.Flags()
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	switch o.verb {
	case "drain":
		f.StringVar(&o.deadline, "deadline", "", "`time` such as 10m after which a run is interrupted and runs elsewhere (default: never)")
		f.BoolVar(&o.wait, "wait", false, "wait until nothing runs there any more")
	case "pause", "resume":
		f.StringVar(&o.tenant, "tenant", "", "`name` of the tenant whose jobs are meant")
	case "forget":
		f.StringVar(&o.agent, "agent", "", "`name` of an agent, instead of an instance")
	}
	return cmd
}

// query is what the request asks for.
func (o *operation) query(args []string) (url.Values, error) {
	query := url.Values{}
	for word, value := range map[string]string{"tenant": o.tenant, "agent": o.agent} {
		if value != "" {
			query.Set(word, value)
		}
	}
	switch {
	case len(args) > 0 && len(query) > 0:
		return nil, usagef("give an instance or a flag, not both")
	case len(args) > 0 && args[0] == "":
		return nil, usagef("the name of the instance is empty") // it must not mean everything
	case len(args) > 0:
		query.Set("instance", args[0])
	case o.verb == "drain" || o.verb == "restart" || o.verb == "forget" && o.agent == "":
		return nil, usagef("which instance? \"status\" lists them")
	}
	if o.deadline != "" {
		query.Set("deadline", o.deadline)
	}
	return query, nil
}

func (o *operation) run(ctx context.Context, a *Admin, cmd *cobra.Command, args []string) error {
	query, err := o.query(args)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return o.send(ctx, a, cmd, query)
	}
	var list []Instance
	if err := a.get(ctx, "instances", nil, &list); err != nil {
		return err
	}
	found, err := targetsOf(list, args[0])
	if err != nil {
		return err
	}
	if len(found) == 0 { // it may be gone, and still be drained
		found = []Instance{{Name: args[0]}}
	} else if err := o.agreed(cmd, found); err != nil {
		return err
	}
	for _, i := range found {
		query.Set("instance", i.Name)
		err := o.send(ctx, a, cmd, query)
		if refusal, ok := errors.AsType[*Refusal](err); ok && refusal.Status == http.StatusNotFound {
			err = unknown(list, i.Name, err)
		}
		if err != nil {
			return err
		}
	}
	for _, i := range found {
		if !o.wait {
			break
		}
		if err := waitEmpty(ctx, a, cmd, i.Name); err != nil {
			return err
		}
	}
	return nil
}

// send makes one request, and says what was done.
func (o *operation) send(ctx context.Context, a *Admin, cmd *cobra.Command, query url.Values) error {
	if err := a.ask(ctx, http.MethodPost, o.verb, query, nil); err != nil {
		return err
	}
	what := "everything"
	for _, word := range []string{"instance", "tenant", "agent"} {
		if name := query.Get(word); name != "" {
			what = word + " " + printable(name)
		}
	}
	fmt.Fprintln(cmd.OutOrStdout(), map[string]string{
		"drain": "draining", "pause": "paused", "resume": "resumed", "forget": "forgot", "restart": "restarting",
	}[o.verb], what)
	return nil
}

// drainPoll is the pause between two looks at an instance that is drained.
const drainPoll = time.Second

// waitEmpty waits until nothing runs at an instance.
func waitEmpty(ctx context.Context, a *Admin, cmd *cobra.Command, name string) error {
	said, empty, heard := "", 0, time.Now()
	for {
		i, err := findInstance(ctx, a, name)
		switch {
		case ctx.Err() != nil:
			fmt.Fprintln(cmd.ErrOrStderr(), "interrupted; the drain goes on, resume", printable(name), "ends it")
			return &coded{ExitInterrupted, errShown}
		case err != nil && time.Since(heard) > patience:
			return err
		case err != nil: // the hub may restart
		case i == nil:
			fmt.Fprintln(cmd.OutOrStdout(), printable(name), "has left the fleet")
			return nil
		case i.State == "offline":
			return &coded{ExitFailed, fmt.Errorf("%s is offline: %s", printable(name), printable(i.Reason))}
		case i.Running == "":
			// A run that had just been given out may not be listed yet.
			if empty++; empty == 2 {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing runs on", printable(name), "any more")
				return nil
			}
		default:
			heard, empty = time.Now(), 0
			if said != i.Running {
				said = i.Running
				fmt.Fprintln(cmd.ErrOrStderr(), "waiting for", printable(said))
			}
		}
		retry.Sleep(ctx, drainPoll)
	}
}

// findInstance finds an instance by name; nil if there is none.
func findInstance(ctx context.Context, v view, name string) (*Instance, error) {
	var list []Instance
	if err := v.get(ctx, "instances", nil, &list); err != nil {
		return nil, err
	}
	for n := range list {
		if list[n].Name == name {
			return &list[n], nil
		}
	}
	return nil, nil
}

// adminError explains an admin endpoint that does not answer.
func adminError(a *Admin, err error) error {
	var refusal *Refusal
	var c *coded
	if err == nil || errors.As(err, &refusal) || errors.As(err, &c) {
		return err
	}
	return fmt.Errorf("%w\n  this command needs the admin endpoint of the running hub: run it on the hub's machine, or give --address (now %s)", err, printable(a.Address))
}
