package gossip

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

var (
	// ErrKeyRequired says that the group would be open to everybody who
	// reaches the port: to join it, to dispatch work, to end it.
	ErrKeyRequired = errors.New("a gossip key is required off loopback")
	// ErrPeer says that the other side of a connection does not have the key.
	ErrPeer = errors.New("the other side does not have the gossip key")
)

// What is derived from the key, each for one purpose only.
const (
	purposeGossip = "comfyhub gossip v1"
	purposeTLS    = "comfyhub agent tls v1"
)

// derive makes key material of the passphrase. The derivation is fast: it
// protects a random key well and a guessable word badly.
func derive(key, purpose string, size int) ([]byte, error) {
	material, err := hkdf.Key(sha256.New, []byte(key), nil, purpose, size)
	if err != nil {
		return nil, fmt.Errorf("gossip key: %w", err)
	}
	return material, nil
}

// TLS returns the configurations for connections from hubs to agents. Both
// sides derive the same Ed25519 key pair from the gossip key, prove that they
// have it, and accept nothing else: no certificate authority, no names, and no
// clocks that must be right.
func TLS(key string) (server, client *tls.Config, err error) {
	if key == "" {
		return nil, nil, ErrKeyRequired
	}
	seed, err := derive(key, purposeTLS, ed25519.SeedSize)
	if err != nil {
		return nil, nil, err
	}
	pair := ed25519.NewKeyFromSeed(seed)
	certificate, err := selfSigned(pair)
	if err != nil {
		return nil, nil, err
	}
	verify := func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return ErrPeer
		}
		theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
		if !ok || !theirs.Equal(pair.Public()) {
			return ErrPeer
		}
		return nil
	}
	server = &tls.Config{
		MinVersion:       tls.VersionTLS13,
		Certificates:     []tls.Certificate{certificate},
		ClientAuth:       tls.RequireAnyClientCert,
		VerifyConnection: verify,
		// HTTP/2 has no room for WebSocket upgrades.
		NextProtos: []string{"http/1.1"},
	}
	client = &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{certificate},
		// The public key is pinned by VerifyConnection, which is stricter
		// than any chain; names say nothing here.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection:   verify,
		NextProtos:         []string{"http/1.1"},
	}
	return server, client, nil
}

func selfSigned(pair ed25519.PrivateKey) (tls.Certificate, error) {
	template := x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "comfyhub"},
		// GPU machines with dead clock batteries must get in as well.
		NotBefore: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:  time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage:  x509.KeyUsageDigitalSignature,
		DNSNames:  []string{"comfyhub"},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, pair.Public(), pair)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("gossip key: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: pair}, nil
}
