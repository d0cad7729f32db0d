// Command caddy is the hub: Caddy with its standard modules and ComfyHub. Called comfyhub, the
// commands of `caddy comfyhub` are its own; called caddy, it is Caddy with one module more.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/caddymodule"
)

func main() {
	if name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"); name != "caddy" {
		own := caddymodule.Command(name, func(code int) error { return exitCode(code) })
		if found, _, err := own.Find(os.Args[1:]); err == nil && found != own {
			os.Exit(run(own))
		}
		caddy.CustomBinaryName, caddy.CustomLongDescription = name, about(own)
		if info, ok := debug.ReadBuildInfo(); ok {
			caddy.CustomVersion = "ComfyHub " + info.Main.Version + ", Caddy"
		}
		findCaddyfile(name)
	}
	caddycmd.Main()
}

// findCaddyfile has a command read the Caddyfile beside the program, where an archive has it, or else that
// of the package, unless there is another in the folder in which it runs.
func findCaddyfile(name string) {
	folders := []string{"/etc/comfyhub"}
	if program, err := os.Executable(); err == nil {
		folders = append([]string{filepath.Dir(program)}, folders...)
	}
	args, found := caddymodule.FindCaddyfile(os.Args[1:], folders...)
	switch {
	case len(args) > len(os.Args)-1:
		fmt.Fprintf(os.Stderr, "%s: no Caddyfile in this folder, using %s\n", name, found)
	case found == "" && len(args) == 1 && args[0] == "run":
		fmt.Fprintf(os.Stderr, "%s: no Caddyfile in this folder, beside the program or in /etc/comfyhub: nothing to run yet\n", name)
	}
	os.Args = append(os.Args[:1:1], args...)
}

// exitCode is the error of a command that has said what is wrong.
type exitCode int

func (exitCode) Error() string { return "failed" }

// run runs a command of ComfyHub and returns the exit code.
func run(own *cobra.Command) int {
	var code exitCode
	switch err := own.Execute(); {
	case errors.As(err, &code):
		return int(code)
	case err != nil:
		return caddy.ExitCodeFailedStartup
	}
	return caddy.ExitCodeSuccess
}

// about is what --help says, before it lists Caddy's commands.
func about(own *cobra.Command) string {
	var text strings.Builder
	text.WriteString(`ComfyHub serves many ComfyUI instances at one address. It is the web server Caddy with one
module more. To run a hub with the Caddyfile in this folder, beside the program, or in /etc/comfyhub:

	$ ` + own.Name() + ` run

Its own commands:

`)
	for _, c := range own.Commands() {
		fmt.Fprintf(&text, "  %-14s %s\n", c.Name(), c.Short)
	}
	return text.String() + "\nThe other commands are Caddy's: https://caddyserver.com/docs/command-line"
}
