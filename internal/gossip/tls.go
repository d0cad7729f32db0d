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

// anyRole is the subject of the certificates of the gossip key and of agents.
const anyRole = "comfyhub"

// ServeTLS returns the TLS configuration with which an agent serves its instances.
// The agent proves its identity and accepts hubs only. The gossip key (see [Keys])
// tells it who may be a hub while it knows none. Names mean nothing, and clocks need
// not be right.
func ServeTLS(key string, id Identity, hubs *HubPin) (*tls.Config, error) {
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
	roles, err := rolesOf(id)
	if err != nil {
		return nil, err
	}
	public := publicOf(groups)
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
		ClientCAs:        roles,
		VerifyConnection: func(s tls.ConnectionState) error { return hubs.accept(s, public) },
		// HTTP/2 does not support WebSocket upgrades here.
		NextProtos: []string{"http/1.1"},
	}, nil
}

// rolesOf returns what an agent asks clients for: to be a hub, or, of older hubs, to have
// a certificate at all. Of the certificates only the subjects are used.
func rolesOf(id Identity) (*x509.CertPool, error) {
	roles := x509.NewCertPool()
	for _, role := range []string{hubRole, anyRole} {
		der, err := certify(publicOf([]ed25519.PrivateKey{id.private})[0], id.private, role)
		if err != nil {
			return nil, err
		}
		wanted, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("agent key: %w", err)
		}
		roles.AddCert(wanted)
	}
	return roles, nil
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
	der, err := certify(publicOf([]ed25519.PrivateKey{pair})[0], pair, anyRole)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: pair}, nil
}

// certify makes a certificate of a key, signed by another or by itself.
func certify(key ed25519.PublicKey, by ed25519.PrivateKey, subject string) ([]byte, error) {
	template := x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: subject},
		// GPU machines with dead clock batteries must be accepted as well.
		NotBefore: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:  time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage:  x509.KeyUsageDigitalSignature,
		DNSNames:  []string{"comfyhub"},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key, by)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return der, nil
}
