package caddymodule

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/testing/freeport"
)

func TestMistakesInKEDA(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"keda":                                   "keda takes an address",
		"keda :9190":                             "off loopback it needs tls and clients",
		"keda localhost":                         "is not of the form host:port",
		"keda :9190 {\ntls a b\n}":               "tls and clients need each other",
		"keda :9190 {\ntls a\nclients b\n}":      "tls takes a certificate and its key",
		"keda :9190 {\ntls a b\nclient c\n}":     "did you mean clients?",
		"keda localhost:1\nkeda localhost:2":     "keda is given twice",
		"keda :9190-9200 {\ntls a b\nclients c}": "",
	} {
		var a App
		require.ErrorContains(t, a.UnmarshalCaddyfile(caddyfile.NewTestDispenser("comfyhub {\n"+line+"\n}")), want, line)
	}
}

// certificate makes one that signs itself, for a name.
func certificate(t *testing.T, folder, name string) (certFile, keyFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(folder, name+".crt"), filepath.Join(folder, name+".key")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return certFile, keyFile
}

// Only those with a certificate of the right authority are served.
func TestKEDAKnowsItsClients(t *testing.T) {
	folder := t.TempDir()
	cert, key := certificate(t, folder, "hub")
	mine, mineKey := certificate(t, folder, "keda")
	other, otherKey := certificate(t, folder, "other")
	address, err := freeport.Address()
	require.NoError(t, err)
	k := &KEDA{Address: address, TLS: []string{cert, key}, Clients: mine}
	require.NoError(t, k.check())
	require.NoError(t, k.start(func(context.Context) ([]scale.Status, error) { return nil, nil }, slog.New(slog.DiscardHandler)))
	defer k.stop()
	roots := x509.NewCertPool()
	text, err := os.ReadFile(cert)
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(text))
	greets := func(own ...tls.Certificate) error {
		c, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "hub", Certificates: own, NextProtos: []string{"h2"}}}).DialContext(t.Context(), "tcp", k.Address)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Read(make([]byte, 1)) // the server's settings, or why it refuses
		return err
	}
	load := func(cert, key string) tls.Certificate {
		pair, err := tls.LoadX509KeyPair(cert, key)
		require.NoError(t, err)
		return pair
	}
	require.NoError(t, greets(load(mine, mineKey)))
	require.Error(t, greets())
	require.Error(t, greets(load(other, otherKey)))
}
