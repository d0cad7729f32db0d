package caddymodule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/comfyhub/comfyhub/internal/hub"
)

// Whom the words "operators", "primary" and "secrets_to" name.
const (
	operatorsName = "an operator"
	primaryName   = "an instance or agent"
	trustedName   = "an agent or instance"
)

// unmarshalNames parses the line of a word that takes names, such as "operators <tenant...>".
// who is what each of them names.
func unmarshalNames(d *caddyfile.Dispenser, who string) ([]string, error) {
	word, nesting := d.Val(), d.Nesting()
	names := d.RemainingArgs()
	if len(names) == 0 {
		return nil, d.ArgErr()
	}
	if err := checkNames(names, who); err != nil {
		return nil, d.Errf("%s: %w", word, err)
	}
	if d.NextBlock(nesting) {
		return nil, d.Errf("%s takes no block", word)
	}
	return names, nil
}

// checkNames refuses an empty name: a variable that is not set must not look as if it had
// named somebody.
func checkNames(names []string, who string) error {
	for n, name := range names {
		if name == "" {
			return fmt.Errorf("%s has no name", who)
		}
		if slices.Contains(names[:n], name) {
			return fmt.Errorf("%s is given twice", name)
		}
		if who == trustedName && strings.Contains(name, "://") {
			if err := checkInstance(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkWhom checks the names that the configuration gives.
func checkWhom(a *App) error {
	if err := checkNames(a.Operators, operatorsName); err != nil {
		return fmt.Errorf("operators: %w", err)
	}
	if err := checkNames(a.Primary, primaryName); err != nil {
		return fmt.Errorf("primary: %w", err)
	}
	if err := checkNames(a.SecretsTo, trustedName); err != nil {
		return fmt.Errorf("secrets_to: %w", err)
	}
	return nil
}

// instanceName returns the name of an instance that is given by its name or its URL. The URL
// was checked.
func instanceName(given string) string {
	if strings.Contains(given, "://") {
		given, _ = hub.InstanceName(given)
	}
	return given
}
