package gossip

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
)

// hubRole is the subject of the certificates that make a hub a hub. An agent that knows
// such certificates asks for it; older ones ask for nothing, and are shown that of the
// gossip key.
const hubRole = "comfyhub hub v1"

// Authority is by what agents know a hub: a key pair that only the hubs have, unlike the
// gossip key. Hubs that share a storage share it.
type Authority struct {
	groups []ed25519.PrivateKey
	pairs  func() ([]ed25519.PrivateKey, error)

	mu   sync.Mutex
	used ed25519.PublicKey // whose certificate is made
	made tls.Certificate
}

// NewAuthority makes an authority of a gossip key (see [Keys]) and of the hubs' own key
// pairs: first the one in use, then those that it has replaced. They are asked for when a
// connection opens, since they change.
func NewAuthority(key string, pairs func() ([]ed25519.PrivateKey, error)) (*Authority, error) {
	a := &Authority{pairs: pairs}
	if len(Keys(key)) == 0 {
		return a, nil
	}
	var err error
	a.groups, err = groupKeys(key)
	return a, err
}

// Key is the public half of the key in use, as text. An agent may be given it, see
// [HubPin].
func (a *Authority) Key() (string, error) {
	pairs, err := a.pairs()
	if err != nil {
		return "", err
	}
	return Identity{pairs[0]}.Key(), nil
}

// DialTLS returns the TLS configuration with which a hub reaches one agent. The hub
// proves that it is one, and accepts only the holder of the agent's own key, as returned
// by [Identity.Key].
func (a *Authority) DialTLS(agent string) (*tls.Config, error) {
	if len(a.groups) == 0 {
		return nil, ErrKeyRequired
	}
	theirs, err := parseKey(agent)
	if err != nil {
		return nil, fmt.Errorf("key of the agent: %w", err)
	}
	former, err := selfSigned(a.groups[0])
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: serverName,
		GetClientCertificate: func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if !slices.ContainsFunc(asked.AcceptableCAs, isHubRole) {
				return &former, nil // the agent knows nothing else, and accepts it from anybody in the group
			}
			return a.certificate()
		},
		// VerifyConnection pins the public key, which is stricter than any chain;
		// names mean nothing here.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection:   holds(theirs),
		NextProtos:         []string{"http/1.1"},
	}, nil
}

// certificate is that of the key in use. Others for the same key follow it: one that is
// signed by each key that it has replaced, so that agents which know that one learn this
// one, and one by each gossip key, for agents that know no hub yet.
func (a *Authority) certificate() (*tls.Certificate, error) {
	pairs, err := a.pairs()
	if err != nil {
		return nil, err
	}
	public := publicOf(pairs[:1])[0]
	a.mu.Lock()
	defer a.mu.Unlock()
	if !public.Equal(a.used) {
		made := tls.Certificate{PrivateKey: pairs[0]}
		for _, by := range slices.Concat(pairs, a.groups) {
			der, err := certify(public, by, hubRole)
			if err != nil {
				return nil, err
			}
			made.Certificate = append(made.Certificate, der)
		}
		a.used, a.made = public, made
	}
	return &a.made, nil
}

// isHubRole reports whether an agent asks for the certificate of a hub.
func isHubRole(subject []byte) bool { return bytes.Contains(subject, []byte(hubRole)) }

// vouched reports whether one of the certificates, which are all that a client has shown,
// says that the owner of its first one is a hub, and is signed by a key.
func vouched(shown []*x509.Certificate, by ed25519.PublicKey) bool {
	return slices.ContainsFunc(shown, func(c *x509.Certificate) bool {
		theirs, ok := c.PublicKey.(ed25519.PublicKey)
		return ok && theirs.Equal(shown[0].PublicKey) && c.Subject.CommonName == hubRole &&
			c.SignatureAlgorithm == x509.PureEd25519 && ed25519.Verify(by, c.RawTBSCertificate, c.Signature)
	})
}
