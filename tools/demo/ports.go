package main

import (
	"fmt"
	"net"
	"strconv"
)

// portTries is how many ports after the wanted one are tried.
const portTries = 200

// pickPort returns an address on loopback with the wanted port, or with the
// next one that is free, and says so. With udp the port must be free for both.
func pickPort(what string, wanted int, udp bool) (string, error) {
	for port := wanted; port < wanted+portTries; port++ {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if !isFree(address, udp) {
			continue
		}
		if port != wanted {
			say("port", "%d (%s) is taken, using %d", wanted, what, port)
		}
		return address, nil
	}
	return "", fmt.Errorf("no free port for %s from %d to %d", what, wanted, wanted+portTries-1)
}

// isFree tries to listen. The listener must not share its port (SO_REUSEPORT),
// as Caddy's does: two hubs on one port would each get half of the requests.
func isFree(address string, udp bool) bool {
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	tcp.Close()
	if !udp {
		return true
	}
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return false
	}
	packets.Close()
	return true
}
