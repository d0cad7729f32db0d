package caddymodule

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// withConfig are Caddy's commands that read a configuration, by default the Caddyfile of the folder in which
// they run. Not reload: in a shell, which has not the environment of the service, it would give the running
// hub other settings.
var withConfig = []string{"run", "start", "validate", "adapt"}

// FindCaddyfile adds the Caddyfile of the first of the folders that has one to the arguments of a command
// that names none, unless the command finds its own in the folder in which it runs. It returns that
// Caddyfile, or nothing.
func FindCaddyfile(args []string, folders ...string) (all []string, found string) {
	if len(args) == 0 || !slices.Contains(withConfig, args[0]) || slices.ContainsFunc(args[1:], choosesConfig) {
		return args, ""
	}
	for _, folder := range slices.Insert(slices.Clone(folders), 0, "") {
		file := filepath.Join(folder, "Caddyfile")
		if _, err := os.Stat(file); err != nil {
			continue
		}
		if folder == "" {
			return args, file
		}
		return append(slices.Clone(args), "--config", file), file
	}
	return args, ""
}

// choosesConfig reports whether an argument of a command says which configuration is meant, or that
// none is needed.
func choosesConfig(arg string) bool {
	if long, ok := strings.CutPrefix(arg, "--"); ok {
		name, _, _ := strings.Cut(long, "=")
		return name == "config" || name == "resume" || name == "help"
	}
	return strings.HasPrefix(arg, "-") && strings.ContainsAny(arg, "crh")
}
