package caddymodule

import "github.com/comfyhub/comfyhub/internal/egress"

// checkHost checks one item of a list of hosts that the hub may call.
func checkHost(item string) error {
	if hasPlaceholder(item) {
		return nil
	}
	_, err := egress.ParseHosts([]string{item})
	return err
}

// hostsOf returns a list of hosts that the hub may call. A list that is not valid, which
// was refused before, allows none.
func hostsOf(items []string) egress.Hosts {
	hosts, err := egress.ParseHosts(items)
	if err != nil {
		return egress.Hosts{}
	}
	return hosts
}
