package shell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
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
	// defaultHub is the hub on the same machine.
	defaultHub = "http://localhost:8188"
)

// login is what the flags say about the hub.
type login struct{ hub, user, passwordFile, tokenFile string }

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

// AddCommands adds the commands to a parent. exit makes the error by which the program
// ends with an exit code; everything about it has been shown then.
func AddCommands(parent *cobra.Command, exit func(code int) error) {
	var l login
	f := parent.PersistentFlags()
	f.StringVar(&l.hub, "hub", "", "`URL` of the hub (default: the variable "+hubVariable+", else "+defaultHub+")")
	f.StringVar(&l.user, "user", "", "`name` to log in with (default: the variable "+userVariable+"); the password is in "+passwordVariable)
	f.StringVar(&l.passwordFile, "password-file", "", "`file` with the password")
	f.StringVar(&l.tokenFile, "token-file", "", "`file` with a bearer token (default: the variable "+tokenVariable+")")
	ended := func(cmd *cobra.Command, err error) error {
		if err == nil {
			return nil
		}
		if !errors.Is(err, errShown) {
			fmt.Fprintln(cmd.ErrOrStderr(), "comfyhub:", err)
		}
		return exit(codeOf(err))
	}
	parent.SilenceErrors, parent.SilenceUsage = true, true
	parent.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return ended(cmd, usagef("%w; see --help", err))
	})
	parent.Args = cobra.ArbitraryArgs
	parent.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return ended(cmd, usagef("%q is not a command; see --help", args[0]))
		}
		return cmd.Help()
	}
	add := func(cmd *cobra.Command, count func(n int) bool, run func(ctx context.Context, c *Client, cmd *cobra.Command, args []string) error) {
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.Args = cobra.ArbitraryArgs // cobra's own check knows no exit code
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if !count(len(args)) {
				return ended(cmd, usagef("usage: %s", cmd.UseLine()))
			}
			a, err := l.access()
			if err != nil {
				return ended(cmd, err)
			}
			c, err := NewClient(a)
			if err != nil {
				return ended(cmd, usagef("%w", err))
			}
			defer c.Close()
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			defer context.AfterFunc(ctx, stop)() // a second Ctrl-C ends the program at once
			err = run(ctx, c, cmd, args)
			var c2 *coded
			if ctx.Err() != nil && err != nil && !errors.As(err, &c2) {
				err = &coded{ExitInterrupted, errors.New("interrupted")}
			}
			return ended(cmd, err)
		}
		parent.AddCommand(cmd)
	}
	one := func(n int) bool { return n == 1 }
	submit := &submission{}
	add(submit.command(), one, submit.run)
	add(statusCommand(), one, runStatus)
	add(cancelCommand(), one, runCancel)
	logs := &logs{}
	add(logs.command(), func(n int) bool { return n <= 1 }, logs.run)
}
