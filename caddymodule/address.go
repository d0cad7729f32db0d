package caddymodule

import (
	"net"
	"os"
)

// The root Caddyfile listens where COMFYHUB_ADDR says. It needs host and port
// separately, and a Caddyfile cannot split them: a host in a site's address is also
// a condition on the Host header, so that "0.0.0.0:8188" would answer nobody and
// "127.0.0.1:8188" would be blank for requests to localhost.
const (
	addrVariable = "COMFYHUB_ADDR"
	hostVariable = "COMFYHUB_ADDR_HOST"
	portVariable = "COMFYHUB_ADDR_PORT"
)

// splitAddr sets the variables for host and port from the combined one. A part that
// it does not name stays unset, for the Caddyfile's defaults; but ":8188" names all
// addresses of the machine, and the default is loopback.
func splitAddr() {
	addr := os.Getenv(addrVariable)
	if addr == "" {
		return
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = addr, ""
	}
	// Setenv fails on names that contain "=" or NUL, which these do not.
	_ = os.Setenv(hostVariable, host)
	if port != "" {
		_ = os.Setenv(portVariable, port)
	}
}
