package programs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Set is where the programs of one version lie, and its Caddyfile. The agent finds the
// simulator, comfysim, beside itself.
type Set struct{ Caddy, Agent, Bridge, Caddyfile string }

// Made is what make builds in the root of the repository, the current folder.
func Made() Set {
	return Set{Caddy: "./comfyhub", Agent: "bin/agent", Bridge: "bin/botbridge", Caddyfile: "Caddyfile"}
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
	return Set{Caddy: at("comfyhub"), Agent: at("agent"), Bridge: at("botbridge"), Caddyfile: at("Caddyfile")}
}

// Build builds the programs of a source tree into a folder that exists, and copies the
// tree's Caddyfile there. What make has built in the tree is taken as it is where it is up
// to date.
func Build(tree, dir string) (Set, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Set{}, err
	}
	made, set, at := Made(), In(dir), func(name string) string { return filepath.Join(dir, name) }
	// As the Makefile does: Go would link once more what was built with other flags.
	for _, p := range []struct{ made, to, folder, tags string }{
		{made.Caddy, set.Caddy, "caddymodule/caddy", "nobadger,nomysql,nopgx"}, {made.Agent, set.Agent, "agent", ""}, {"bin/comfysim", at("comfysim"), "comfysim", ""}, {made.Bridge, set.Bridge, "botbridge", ""},
	} {
		if _, err := os.Stat(filepath.Join(tree, p.folder)); p.folder == "comfysim" && errors.Is(err, fs.ErrNotExist) {
			continue // an older version's agent has it inside
		}
		if err := copyFile(filepath.Join(tree, p.made), p.to, 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Set{}, err
		}
		build := exec.Command("go", "build", "-ldflags", "-s -w", "-tags", p.tags, "-o", p.to)
		// In its own folder: it may be a module of its own.
		build.Dir, build.Env = filepath.Join(tree, p.folder), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return Set{}, fmt.Errorf("%w: %s", err, out)
		}
	}
	return set, copyFile(filepath.Join(tree, made.Caddyfile), set.Caddyfile, 0o600)
}

// copyFile copies a file to a new one.
func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
