package caddymodule

import (
	"fmt"
	"strings"

	"github.com/comfyhub/comfyhub/internal/fleet"
)

// checkName refuses an empty name: a variable that is not set must not look as if it had named
// somebody. who is what it names.
func checkName(name, who string) error {
	if name == "" {
		return fmt.Errorf("%s has no name", who)
	}
	return nil
}

// checkTrusted accepts the name of an agent or an instance, or the URL of an instance.
func checkTrusted(name string) error {
	if strings.Contains(name, "://") {
		return checkInstance(name)
	}
	return checkName(name, "an agent or instance")
}

// instanceName returns the name of an instance that is given by its name or its URL. The URL
// was checked.
func instanceName(given string) string {
	if strings.Contains(given, "://") {
		given, _ = fleet.StaticName(given)
	}
	return given
}
