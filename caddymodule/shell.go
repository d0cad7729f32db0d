package caddymodule

import (
	"errors"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/internal/shell"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "comfyhub",
		Usage: "submit|status|cancel|logs",
		Short: "Submits workflows to a hub, and shows and cancels jobs",
		Long: `The commands are a client of the hub's plain job API, and run on any machine.

--hub or the variable COMFYHUB_URL names the hub. Where it has logins, give --user
with the password in COMFYHUB_PASSWORD or --password-file, or a bearer token in
COMFYHUB_TOKEN or --token-file.`,
		CobraFunc: func(cmd *cobra.Command) { shell.AddCommands(cmd, exitWith) },
	})
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
