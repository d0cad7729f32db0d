package gossip

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// serverName is the name that hubs ask agents for by SNI. Hubs that are older than
// identities ask for none, and are shown the certificate of the gossip key.
const serverName = "agent.comfyhub.internal"

// ServeTLS returns the TLS configuration with which an agent serves its instances.
// The agent proves its identity and accepts clients that have one of the gossip
// keys (see [Keys]). There is no certificate authority, there are no names, and
// clocks need not be right.
func ServeTLS(key string, id Identity) (*tls.Config, error) {
	groups, err := groupKeys(key)
	if err != nil {
		return nil, err
	}
	if id.none() {
		return nil, errors.New("an agent that serves needs an identity")
	}
	own, err := selfSigned(id.private)
	if err != nil {
		return nil, err
	}
	former, err := selfSigned(groups[0])
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{former},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if hello.ServerName == serverName {
				return &own, nil
			}
			return nil, nil //nolint:nilnil // the one above
		},
		ClientAuth:       tls.RequireAnyClientCert,
		VerifyConnection: holds(publicOf(groups)...),
		// HTTP/2 does not support WebSocket upgrades here.
		NextProtos: []string{"http/1.1"},
	}, nil
}

// DialTLS returns the TLS configuration with which a hub reaches one agent. The hub
// proves that it has the first of the gossip keys, and accepts only the holder of
// the agent's own key, as returned by [Identity.Key].
func DialTLS(key, agent string) (*tls.Config, error) {
	groups, err := groupKeys(key)
	if err != nil {
		return nil, err
	}
	theirs, err := parseKey(agent)
	if err != nil {
		return nil, fmt.Errorf("key of the agent: %w", err)
	}
	certificate, err := selfSigned(groups[0])
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		ServerName:   serverName,
		Certificates: []tls.Certificate{certificate},
		// VerifyConnection pins the public key, which is stricter than any chain;
		// names mean nothing here.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection:   holds(theirs),
		NextProtos:         []string{"http/1.1"},
	}, nil
}

// holds returns a check that accepts connections whose other side has one of the
// keys.
func holds(keys ...ed25519.PublicKey) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return ErrPeer
		}
		theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
		if !ok || !slices.ContainsFunc(keys, func(key ed25519.PublicKey) bool { return theirs.Equal(key) }) {
			return ErrPeer
		}
		return nil
	}
}

// groupKeys returns the key pairs derived from the gossip keys, at least one.
func groupKeys(text string) ([]ed25519.PrivateKey, error) {
	keys := Keys(text)
	if len(keys) == 0 {
		return nil, ErrKeyRequired
	}
	pairs := make([]ed25519.PrivateKey, len(keys))
	for n, key := range keys {
		seed, err := derive(key, purposeTLS, ed25519.SeedSize)
		if err != nil {
			return nil, err
		}
		pairs[n] = ed25519.NewKeyFromSeed(seed)
	}
	return pairs, nil
}

func publicOf(pairs []ed25519.PrivateKey) []ed25519.PublicKey {
	public := make([]ed25519.PublicKey, len(pairs))
	for n, pair := range pairs {
		public[n] = pair.Public().(ed25519.PublicKey) //nolint:forcetypeassert // ed25519 has no other
	}
	return public
}

func selfSigned(pair ed25519.PrivateKey) (tls.Certificate, error) {
	template := x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "comfyhub"},
		// GPU machines with dead clock batteries must be accepted as well.
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
