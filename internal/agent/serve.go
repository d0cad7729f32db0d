package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/comfyhub/comfyhub/internal/gossip"
)

// defaultServePort is the port at which hubs reach the instances.
const defaultServePort = 7947

// listen opens the port of the instances. With TLS the agent proves its identity
// and accepts only its hubs. Without a key the whole fleet is on this machine.
func (a *agent) listen() (net.Listener, error) {
	if len(a.hubs) > 0 {
		return newPuller(a), nil
	}
	address := a.serve
	if address == "" {
		address = fmt.Sprintf(":%d", defaultServePort)
		if a.onLoopback() {
			address = fmt.Sprintf("127.0.0.1:%d", defaultServePort)
		}
	}
	listener, err := a.network.listen(address)
	if errors.Is(err, syscall.EADDRINUSE) && a.serve == "" && a.onLoopback() {
		// Agents of one machine share its loopback; hubs learn the port.
		listener, err = a.network.listen("127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("--serve: %w", err)
	}
	host, _, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	if a.key == "" && gossip.IsLoopback(host) && a.onLoopback() {
		a.door.scheme = "http"
		return listener, nil
	}
	a.door.scheme = "https"
	server, err := gossip.ServeTLS(a.key, a.identity, cmp.Or(a.hubPin, gossip.NewHubPin(a.log)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--serve %s: %w: give --key-file or %s, the same as at the hub", listener.Addr(), err, keyVariable), listener.Close())
	}
	return tls.NewListener(listener, server), nil
}

// server serves the instances; requests, including upgraded ones, end with ctx.
func (a *agent) server(ctx context.Context) *http.Server {
	return &http.Server{
		BaseContext:       func(net.Listener) context.Context { return ctx },
		Handler:           http.HandlerFunc(a.door.serveHTTP),
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
		// A nil map would let the server offer HTTP/2, which has no upgrades.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
}
