package caddymodule

import (
	"net"
	"os"
)

// The root Caddyfile listens where COMFYHUB_ADDR says. A Caddyfile cannot take
// that apart, and needs it apart: a host in a site's address is a condition on
// the Host header as well, so that "0.0.0.0:8188" would answer to nobody and
// "127.0.0.1:8188" would be blank for those who ask for localhost.
const (
	addrVariable = "COMFYHUB_ADDR"
	hostVariable = "COMFYHUB_ADDR_HOST"
	portVariable = "COMFYHUB_ADDR_PORT"
)

// splitAddr sets the variables for host and port from the one for both. What
// it does not name stays unset, for the Caddyfile's defaults.
func splitAddr() {
	addr := os.Getenv(addrVariable)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = addr, ""
	}
	for name, value := range map[string]string{hostVariable: host, portVariable: port} {
		if value != "" {
			// Setenv fails on names that contain "=" or NUL, which these do not.
			_ = os.Setenv(name, value)
		}
	}
}
