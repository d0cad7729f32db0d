package caddymodule

import (
	"errors"
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// unmarshalOperators parses the line "operators <tenant...>".
func unmarshalOperators(a *App, d *caddyfile.Dispenser) error {
	nesting := d.Nesting()
	a.Operators = d.RemainingArgs()
	if len(a.Operators) == 0 {
		return d.ArgErr()
	}
	if err := checkOperators(a.Operators); err != nil {
		return d.Errf("operators: %w", err)
	}
	if d.NextBlock(nesting) {
		return d.Err("operators takes no block")
	}
	return nil
}

// checkOperators refuses an empty name: a variable that is not set must not look as if it
// had named somebody.
func checkOperators(tenants []string) error {
	for n, tenant := range tenants {
		if tenant == "" {
			return errors.New("an operator has no name")
		}
		if slices.Contains(tenants[:n], tenant) {
			return fmt.Errorf("%s is given twice", tenant)
		}
	}
	return nil
}
