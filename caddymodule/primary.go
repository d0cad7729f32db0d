package caddymodule

import (
	"errors"
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// unmarshalPrimary parses the line "primary <name...>".
func unmarshalPrimary(a *App, d *caddyfile.Dispenser) error {
	nesting := d.Nesting()
	a.Primary = d.RemainingArgs()
	if len(a.Primary) == 0 {
		return d.ArgErr()
	}
	if err := checkPrimary(a.Primary); err != nil {
		return d.Errf("primary: %w", err)
	}
	if d.NextBlock(nesting) {
		return d.Err("primary takes no block")
	}
	return nil
}

// checkPrimary refuses an empty name: a variable that is not set must not look as if it had
// named somebody.
func checkPrimary(names []string) error {
	for n, name := range names {
		if name == "" {
			return errors.New("an instance or agent has no name")
		}
		if slices.Contains(names[:n], name) {
			return fmt.Errorf("%s is given twice", name)
		}
	}
	return nil
}

// checkNames checks the names that the configuration gives.
func checkNames(a *App) error {
	if err := checkOperators(a.Operators); err != nil {
		return fmt.Errorf("operators: %w", err)
	}
	if err := checkPrimary(a.Primary); err != nil {
		return fmt.Errorf("primary: %w", err)
	}
	return nil
}
