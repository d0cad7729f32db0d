package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Set is where the programs of one version lie, and its Caddyfile.
type Set struct{ Caddy, Agent, Bridge, Caddyfile string }

// Made is what make builds in the root of the repository, the current folder.
func Made() Set {
	return Set{Caddy: "./caddy", Agent: "bin/agent", Bridge: "bin/botbridge", Caddyfile: "Caddyfile"}
}

// Absolute returns the set with absolute paths, for programs that run in another
// folder.
func (s Set) Absolute() (Set, error) {
	for _, path := range []*string{&s.Caddy, &s.Agent, &s.Bridge, &s.Caddyfile} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return s, err
		}
		*path = absolute
	}
	return s, nil
}

// In is what Build has left in a folder.
func In(dir string) Set {
	at := func(name string) string { return filepath.Join(dir, name) }
	return Set{Caddy: at("caddy"), Agent: at("agent"), Bridge: at("botbridge"), Caddyfile: at("Caddyfile")}
}

// Build builds the programs of a source tree into a folder that exists, and
// copies the tree's Caddyfile there.
func Build(tree, dir string) (Set, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Set{}, err
	}
	build := exec.Command("go", "build", "-tags", "nobadger,nomysql,nopgx", "-ldflags", "-s -w", "-o", dir, "./caddymodule/caddy", "./agent", "./botbridge")
	build.Dir, build.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return Set{}, fmt.Errorf("%w: %s", err, out)
	}
	set := In(dir)
	caddyfile, err := os.ReadFile(filepath.Join(tree, "Caddyfile"))
	if err != nil {
		return Set{}, err
	}
	return set, os.WriteFile(set.Caddyfile, caddyfile, 0o600)
}
