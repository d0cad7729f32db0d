package shell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// The environment variables from which the commands read what their flags do not say.
const (
	hubVariable      = "COMFYHUB_URL"
	userVariable     = "COMFYHUB_USER"
	passwordVariable = "COMFYHUB_PASSWORD"
	tokenVariable    = "COMFYHUB_TOKEN" //nolint:gosec // the name of a variable, no secret
	// adminVariable is that of the root Caddyfile.
	adminVariable = "COMFYHUB_ADMIN"
	defaultAdmin  = "localhost:2019"
	// defaultHub is the hub on the same machine.
	defaultHub = "http://localhost:8188"
)

// login is what the flags say about the hub.
type login struct{ hub, user, passwordFile, tokenFile string }

// named reports whether a flag or a variable says which hub is meant, or who asks.
func (l login) named() bool {
	return l != (login{}) || os.Getenv(hubVariable) != "" || os.Getenv(userVariable) != "" || os.Getenv(tokenVariable) != ""
}

// access reads the flags, the variables and the files of secrets.
func (l login) access() (Access, error) {
	a := Access{Hub: cmp.Or(l.hub, os.Getenv(hubVariable), defaultHub)}
	var err error
	switch {
	case l.tokenFile != "" && (l.user != "" || l.passwordFile != ""):
		return a, usagef("either --user or --token-file, not both")
	case l.tokenFile != "":
		a.Token, err = readSecret(l.tokenFile)
		return a, err
	case l.user == "" && l.passwordFile == "" && os.Getenv(tokenVariable) != "":
		a.Token = os.Getenv(tokenVariable)
		return a, nil
	}
	a.User, a.Password = cmp.Or(l.user, os.Getenv(userVariable)), os.Getenv(passwordVariable)
	if l.passwordFile != "" {
		if a.Password, err = readSecret(l.passwordFile); err != nil {
			return a, err
		}
	}
	switch {
	case a.User == "" && l.passwordFile != "":
		return a, usagef("--password-file: whose? Give --user, too")
	case a.User != "" && a.Password == "":
		return a, usagef("the password of %s is missing: give it in %s or by --password-file", a.User, passwordVariable)
	}
	return a, nil
}

// readSecret reads the first line of a file.
func readSecret(name string) (string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", usagef("%w", err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", usagef("%s is empty", name)
	}
	return line, nil
}

// Options are what the commands need of the program that has them.
type Options struct {
	// Exit makes the error by which the program ends with an exit code; everything about it
	// has been shown then.
	Exit func(code int) error
	// Resolve turns an address as Caddy writes it into what can be dialled.
	Resolve func(address string) (network, dial string, err error)
}

// commands adds commands to a parent.
type commands struct {
	Options
	parent *cobra.Command
	login  login
	// address is that of the admin endpoint.
	address string
}

// AddCommands adds the commands to a parent.
func AddCommands(parent *cobra.Command, o Options) {
	c := &commands{Options: o, parent: parent}
	f := parent.PersistentFlags()
	f.StringVar(&c.login.hub, "hub", "", "`URL` of the hub (default: the variable "+hubVariable+", else "+defaultHub+")")
	f.StringVar(&c.login.user, "user", "", "`name` to log in with (default: the variable "+userVariable+"); the password is in "+passwordVariable)
	f.StringVar(&c.login.passwordFile, "password-file", "", "`file` with the password")
	f.StringVar(&c.login.tokenFile, "token-file", "", "`file` with a bearer token (default: the variable "+tokenVariable+")")
	c.flags(parent)
	c.groups(parent)
	none := func(n int) bool { return n == 0 }
	one := func(n int) bool { return n == 1 }
	most := func(n int) bool { return n <= 1 }
	some := func(n int) bool { return n >= 1 }
	submit := &submission{}
	c.addClient(submit.command(), one, submit.run)
	c.add(cancelCommand(), one, c.aboutJob(
		func(ctx context.Context, a *Admin, cmd *cobra.Command, id, tenant string) error {
			return runCancel(cmd, func() (bool, string, error) { return a.CancelJob(ctx, id, tenant) })
		},
		func(ctx context.Context, c *Client, cmd *cobra.Command, id string) error {
			return runCancel(cmd, func() (bool, string, error) { return c.Cancel(ctx, id) })
		}))
	logs := &logs{}
	c.addClient(logs.command(), most, logs.run)
	c.add(statusCommand(), most, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			if watch, _ := cmd.Flags().GetBool("watch"); watch {
				return usagef("--watch shows the fleet; follow a job with \"logs -f ID\"")
			}
			return c.aboutJob(operatorsStatus, runStatus)(ctx, cmd, args)
		}
		return c.withView(ctx, func(v view) error { return runFleetStatus(ctx, v, cmd) })
	})
	c.add(checkCommand(), none, c.operator(func(ctx context.Context, a *Admin, cmd *cobra.Command, _ []string) error {
		return runCheck(ctx, a, c.login, cmd)
	}))
	for _, verb := range []string{"drain", "pause", "resume", "restart", "forget"} {
		o := &operation{verb: verb}
		c.add(o.command(), most, c.operator(o.run))
	}
	c.addKeys()
	token := &cobra.Command{Use: "token add|list|revoke", Short: "Let GPU machines that only dial out join the fleet"}
	c.addTokens(token)
	c.parent.AddCommand(token)
	c.add(adoptCommand(), none, c.operator(runAdopt))
	trash := trashCommand()
	c.groups(trash)
	c.parent.AddCommand(trash)
	c.addTo(trash, trashListCommand(), none, c.operator(runTrashList))
	c.addTo(trash, trashRestoreCommand(), some, c.operator(runTrashRestore))
	c.add(hubKeyCommand(), none, c.operator(runHubKey))
	c.add(repairCommand(), one, func(_ context.Context, cmd *cobra.Command, args []string) error { return runRepair(cmd, args) })
	c.add(keygenCommand(), most, func(_ context.Context, cmd *cobra.Command, args []string) error { return runKeygen(cmd, args) })
}

// flags adds what all of the operator's commands have.
func (c *commands) flags(parent *cobra.Command) {
	parent.PersistentFlags().StringVarP(&c.address, "address", "a", "",
		"`address` of the admin endpoint, for the operator's commands (default: the variable "+adminVariable+", else "+defaultAdmin+")")
	parent.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return c.ended(cmd, usagef("%w; see --help", err))
	})
}

// groups makes a command one that only has others below it.
func (c *commands) groups(group *cobra.Command) {
	group.SilenceErrors, group.SilenceUsage = true, true
	group.Args = cobra.ArbitraryArgs
	group.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return c.ended(cmd, usagef("%q is not a command; see --help", args[0]))
		}
		return cmd.Help()
	}
}

// ended shows the error of a command, and returns the one by which the program ends.
func (c *commands) ended(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, errShown) {
		fmt.Fprintln(cmd.ErrOrStderr(), "comfyhub:", err)
	}
	return c.Exit(codeOf(err))
}

// add adds a command. count tells how many arguments it takes.
func (c *commands) add(cmd *cobra.Command, count func(n int) bool, run func(ctx context.Context, cmd *cobra.Command, args []string) error) {
	c.addTo(c.parent, cmd, count, run)
}

// addTo adds a command below another.
func (c *commands) addTo(parent, cmd *cobra.Command, count func(n int) bool, run func(ctx context.Context, cmd *cobra.Command, args []string) error) {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.Args = cobra.ArbitraryArgs // cobra's own check knows no exit code
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !count(len(args)) {
			return c.ended(cmd, usagef("usage: %s", cmd.UseLine()))
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		defer context.AfterFunc(ctx, stop)() // a second Ctrl-C ends the program at once
		err := run(ctx, cmd, args)
		var known *coded
		if ctx.Err() != nil && err != nil && !errors.As(err, &known) {
			err = &coded{ExitInterrupted, errors.New("interrupted")}
		}
		return c.ended(cmd, err)
	}
	parent.AddCommand(cmd)
}

// addClient adds a command that speaks to a hub as a user.
func (c *commands) addClient(cmd *cobra.Command, count func(n int) bool, run func(ctx context.Context, c *Client, cmd *cobra.Command, args []string) error) {
	c.add(cmd, count, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return c.withClient(func(client *Client) error { return run(ctx, client, cmd, args) })
	})
}

// withClient runs something with a client of the hub.
func (c *commands) withClient(run func(*Client) error) error {
	access, err := c.login.access()
	if err != nil {
		return err
	}
	client, err := NewClient(access)
	if err != nil {
		return usagef("%w", err)
	}
	defer client.Close()
	return run(client)
}

// operator is a command that speaks to a hub as its operator.
func (c *commands) operator(run func(ctx context.Context, a *Admin, cmd *cobra.Command, args []string) error) func(context.Context, *cobra.Command, []string) error {
	return func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return c.withAdmin(func(a *Admin) error { return adminError(a, run(ctx, a, cmd, args)) })
	}
}

// withAdmin runs something with a client of the admin endpoint.
func (c *commands) withAdmin(run func(*Admin) error) error {
	admin, err := NewAdmin(cmp.Or(c.address, os.Getenv(adminVariable), defaultAdmin), c.Resolve)
	if err != nil {
		return err
	}
	defer admin.Close()
	return run(admin)
}

// aboutJob is a command about one job: the operator's by the admin endpoint if --address or
// --tenant is given, else a user's by the hub's URL. If neither says which hub is meant and the
// user has no such job there, it is the operator's at this machine's admin endpoint, if a hub
// answers there.
func (c *commands) aboutJob(
	operators func(ctx context.Context, a *Admin, cmd *cobra.Command, id, tenant string) error,
	users func(ctx context.Context, c *Client, cmd *cobra.Command, id string) error,
) func(context.Context, *cobra.Command, []string) error {
	return func(ctx context.Context, cmd *cobra.Command, args []string) error {
		tenant, err := cmd.Flags().GetString("tenant")
		switch {
		case err != nil:
			return err
		case (tenant != "" || c.address != "") && c.login != (login{}):
			return usagef("either --address or --tenant, or the hub's URL and a login, not both")
		case tenant != "" || c.address != "":
			return c.operator(func(ctx context.Context, a *Admin, cmd *cobra.Command, args []string) error {
				return operators(ctx, a, cmd, args[0], tenant)
			})(ctx, cmd, args)
		}
		asUser := c.withClient(func(client *Client) error { return users(ctx, client, cmd, args[0]) })
		if c.login.named() || !mayBeOthers(asUser) {
			return asUser
		}
		return c.withAdmin(func(a *Admin) error {
			if err := operators(ctx, a, cmd, args[0], ""); err == nil || !mayBeOthers(err) && isRefusal(err) {
				return err
			}
			return asUser
		})
	}
}

// mayBeOthers reports whether a job may be somebody else's: the hub knows none, or wants a login, or
// there is none at the address that nobody has chosen, where perhaps a ComfyUI is.
func mayBeOthers(err error) bool {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return slices.Contains([]int{http.StatusNotFound, http.StatusUnauthorized, http.StatusMethodNotAllowed}, refusal.Status)
	}
	return err != nil && !isRefusal(err) && !errors.Is(err, context.Canceled)
}

// isRefusal reports whether a hub has answered, but not as wanted.
func isRefusal(err error) bool {
	_, refused := errors.AsType[*Refusal](err)
	_, other := errors.AsType[*coded](err)
	return refused || other
}

// withView runs something with a view of the fleet: by the admin endpoint if --address names
// it, by the hub's URL if a flag or variable names that or a login, else by the admin endpoint
// of this machine if a hub answers there.
func (c *commands) withView(ctx context.Context, run func(view) error) error {
	named := c.login.named()
	switch {
	case c.address != "" && c.login != (login{}):
		return usagef("either --address or the hub's URL and a login, not both")
	case c.address != "":
		return c.withAdmin(func(a *Admin) error { return adminError(a, run(a)) })
	case named:
		return c.withClient(func(client *Client) error { return run(client) })
	}
	return c.withAdmin(func(a *Admin) error {
		return c.withClient(func(client *Client) error {
			v, err := either(ctx, a, client)
			if err != nil {
				return err
			}
			return run(v)
		})
	})
}
