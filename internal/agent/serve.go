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
	"strings"
	"syscall"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/gossip"
	"github.com/comfyhub/comfyhub/internal/tunnel"
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
		a.scheme = "http"
		return listener, nil
	}
	a.scheme = "https"
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
		Handler:           http.HandlerFunc(a.serveHTTP),
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
		// A nil map would let the server offer HTTP/2, which has no upgrades.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
}

// serveHTTP forwards /i/NAME/... to an instance and handles /restart/NAME and /kept/NAME. Paths
// are compared as received, including escapes: a mux would clean them, and ComfyUI
// distinguishes paths that it would make equal.
func (a *agent) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		// No hub sends these. On loopback there is no other sign that a web page is
		// attacking an instance that trusts its neighbours.
		http.Error(w, "browsers have no business here", http.StatusForbidden)
		return
	}
	if a.scheme == "http" && !a.ownHost(r.Host) {
		// A name of somebody else's that was made to lead here (DNS rebinding).
		http.Error(w, "this is not the host of an agent without a gossip key", http.StatusForbidden)
		return
	}
	path := r.URL.EscapedPath()
	if p, ok := a.hear.(*puller); ok && path == tunnel.ReportsPath {
		p.serveReports(w, r)
		return
	}
	if name, ok := strings.CutPrefix(path, comfyui.RestartPath); ok {
		a.serveRestart(w, r, name)
		return
	}
	if name, ok := strings.CutPrefix(path, comfyui.KeptPath); ok {
		a.serveKept(w, r, name)
		return
	}
	name, ok := strings.CutPrefix(path, comfyui.InstancePath)
	name, _, slash := strings.Cut(name, "/")
	i := a.find(name)
	if !ok || !slash || i == nil {
		http.NotFound(w, r)
		return
	}
	a.pass(i, w, r)
}

// ownHost reports whether a request is for this machine's loopback, where an agent without
// a gossip key serves, or for the address that --serve names.
func (a *agent) ownHost(host string) bool {
	return gossip.IsLoopback(hostOf(host)) || a.serve != "" && hostOf(host) == hostOf(a.serve)
}

// pass passes a request on to an instance.
func (a *agent) pass(i *instance, w http.ResponseWriter, r *http.Request) {
	answer := &passed{ResponseWriter: w, deliberate: func() bool { return a.deliberate(i) }}
	http.StripPrefix(comfyui.InstancePath+i.name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isFetch(r.URL.Path) {
			defer a.fetches.begin()()
		}
		if !comfyui.IsReboot(r.Method, r.URL) {
			i.handler.ServeHTTP(w, r)
			return
		}
		a.ask(i)
		i.handler.ServeHTTP(w, r)
		if answer.status >= http.StatusBadRequest && answer.status < http.StatusInternalServerError {
			a.unask(i) // it is not there, or not allowed
		}
	})).ServeHTTP(answer, r)
}
