package caddymodule

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/internal/shell"
)

// aboutShell is the help of the commands.
const aboutShell = `submit, status, cancel and logs are a client of a hub, and run on any machine.
check, drain, pause, resume, restart, forget, key and token are the operator's: they talk to the admin
endpoint of the running hub (--address), and so does status where it is given.

--hub or the variable COMFYHUB_URL names the hub. Where it has logins, give --user
with the password in COMFYHUB_PASSWORD or --password-file, or a bearer token in
COMFYHUB_TOKEN or --token-file.`

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "comfyhub",
		Usage: "submit|status|cancel|logs|check|drain|pause|resume|restart|forget|key|token|hub-key|keygen",
		Short: "Submits workflows to a hub, shows and cancels jobs, runs the fleet, and makes API keys",
		Long:  aboutShell,
		CobraFunc: func(cmd *cobra.Command) {
			shell.AddCommands(cmd, shell.Options{Exit: exitWith, Resolve: resolveAdmin})
		},
	})
	caddycmd.RegisterCommand(caddycmd.Command{ // its name before 0.2.0
		Name: "comfyhub-token", Usage: "add|revoke NAME | list", Short: "Lets GPU machines that only dial out join the fleet",
		CobraFunc: func(cmd *cobra.Command) {
			shell.AddTokenCommands(cmd, shell.Options{Exit: exitWith, Resolve: resolveAdmin})
		},
	})
}

// Command returns a program that has the commands of `caddy comfyhub`. Exit makes the error by which
// one ends with an exit code, after it has said what is wrong.
func Command(name string, exit func(code int) error) *cobra.Command {
	program := &cobra.Command{Use: name, Long: aboutShell}
	shell.AddCommands(program, shell.Options{Exit: exit, Resolve: resolveAdmin})
	return program
}

// resolveAdmin turns the address of an admin endpoint into what can be dialled.
func resolveAdmin(address string) (network, dial string, err error) {
	parsed, err := caddy.ParseNetworkAddress(address)
	if err != nil {
		return "", "", err
	}
	if parsed.PortRangeSize() > 1 {
		return "", "", errors.New("want one port")
	}
	return parsed.Network, parsed.JoinHostPort(0), nil
}

// exitWith is an error by which Caddy ends with an exit code, 1 or more. Codes above 1 need
// an error of a type of its own, which only this function of Caddy's makes.
func exitWith(code int) error {
	wrapped := caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) { return code, nil })
	if err := wrapped(&cobra.Command{}, nil); err != nil {
		return err
	}
	return errors.New("failed")
}
