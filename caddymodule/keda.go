package caddymodule

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/comfyhub/comfyhub/internal/keda"
)

// KEDA is where an external scaler of KEDA asks.
type KEDA struct {
	// Where it asks, over gRPC.
	Address string `json:"address"`

	// PEM files with the certificate that the hub shows, and its key. Required off loopback.
	TLS []string `json:"tls,omitempty" word:"tls <certificate> <key>"`

	// A PEM file with the certificates of those that sign KEDA's. Required off loopback.
	Clients string `json:"clients,omitempty" word:"clients <ca>"`

	server *keda.Server
	work   sync.WaitGroup
}

// UnmarshalCaddyfile parses a block "keda <address>" of the app.
func (k *KEDA) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if !d.Args(&k.Address) || d.CountRemainingArgs() > 0 {
		return d.Err("keda takes an address")
	}
	if _, err := lines(d, k, "", nil); err != nil {
		return err
	}
	if err := k.check(); err != nil {
		return d.Errf("keda: %w", err)
	}
	return nil
}

// check validates values that may come from JSON.
func (k *KEDA) check() error {
	if k == nil || hasPlaceholder(k.Address) {
		return nil
	}
	address, err := caddy.ParseNetworkAddress(k.Address)
	switch {
	case err != nil:
		return err
	case address.PortRangeSize() != 1 || !address.IsUnixNetwork() && address.StartPort == 0:
		return fmt.Errorf("%q is not of the form host:port", k.Address)
	case len(k.TLS) != 0 && len(k.TLS) != 2:
		return errors.New("tls takes a certificate and its key")
	case (len(k.TLS) == 0) != (k.Clients == ""):
		return errors.New("tls and clients need each other")
	case len(k.TLS) == 0 && !address.IsUnixNetwork() && !isLoopbackHost(address.Host):
		return errors.New("off loopback it needs tls and clients: KEDA shows a certificate, and has no other way to say who it is")
	}
	return nil
}

func isLoopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// secure is the TLS configuration, nil for none.
func (k *KEDA) secure() (*tls.Config, error) {
	if len(k.TLS) == 0 {
		return nil, nil //nolint:nilnil // none
	}
	own, err := tls.LoadX509KeyPair(k.TLS[0], k.TLS[1])
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(k.Clients)
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", k.Clients)
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}, nil
}

// start serves KEDA; the socket is shared with the configuration before.
func (k *KEDA) start(source keda.Source, log *slog.Logger) error {
	if k == nil {
		return nil
	}
	secure, err := k.secure()
	if err != nil {
		return fmt.Errorf("keda: %w", err)
	}
	address, err := caddy.ParseNetworkAddress(k.Address)
	if err != nil {
		return fmt.Errorf("keda: %w", err)
	}
	l, err := address.Listen(context.Background(), 0, net.ListenConfig{})
	if err != nil {
		return fmt.Errorf("keda: %w", err)
	}
	listener, ok := l.(net.Listener)
	if !ok {
		return fmt.Errorf("keda: %s carries no gRPC", k.Address)
	}
	k.server = keda.New(source, secure)
	k.work.Go(func() {
		if err := k.server.Serve(listener); err != nil {
			log.Error("KEDA is not served any more", "error", err)
		}
	})
	return nil
}

// stop ends what start has begun.
func (k *KEDA) stop() {
	if k == nil || k.server == nil {
		return
	}
	k.server.Close()
	k.work.Wait()
}
