package caddymodule

import (
	"net"
	"os"
)

// The root Caddyfile listens where COMFYHUB_ADDR and COMFYHUB_OPERATORS say. It needs host and
// port separately, and a Caddyfile cannot split them: a host in a site's address is also a
// condition on the Host header, so that "0.0.0.0:8188" would answer nobody and
// "127.0.0.1:8188" would be blank for requests to localhost. The halves of each variable are in
// those with these endings.
const (
	addrVariable      = "COMFYHUB_ADDR"
	operatorsVariable = "COMFYHUB_OPERATORS"
	hostEnding        = "_HOST"
	portEnding        = "_PORT"
)

// splitAddresses sets the variables for host and port from the combined ones. A part that
// one does not name stays unset, for the Caddyfile's defaults; but ":8188" names all
// addresses of the machine, and the default is loopback.
func splitAddresses() {
	for _, name := range []string{addrVariable, operatorsVariable} {
		addr := os.Getenv(name)
		if addr == "" {
			continue
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			host, port = addr, ""
		}
		// Setenv fails on names that contain "=" or NUL, which these do not.
		_ = os.Setenv(name+hostEnding, host)
		if port != "" {
			_ = os.Setenv(name+portEnding, port)
		}
	}
}
