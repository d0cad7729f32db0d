package caddymodule

import "github.com/comfyhub/comfyhub/internal/hub"

// checkHost checks one item of a list of hosts that the hub may call.
func checkHost(item string) error {
	if hasPlaceholder(item) {
		return nil
	}
	_, err := hub.ParseHosts([]string{item})
	return err
}

// hostsOf returns a list of hosts that the hub may call. A list that is not valid, which
// was refused before, allows none.
func hostsOf(items []string) hub.Hosts {
	hosts, err := hub.ParseHosts(items)
	if err != nil {
		return hub.Hosts{}
	}
	return hosts
}
