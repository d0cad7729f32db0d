package gossip

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	agent, thief, pair := NewIdentity(), NewIdentity(), newPair()
	url := serveAgent(t, "key one", agent, NewHubPin(discard()))
	require.ErrorIs(t, call(url, hubs(t, "key one", pair).dial(t, thief)), ErrPeer, "another machine of the group")
	require.Error(t, call(url, hubs(t, "key two", pair).dial(t, agent)), "a client without the gossip key is not let in")
	require.Error(t, call(url, &tls.Config{InsecureSkipVerify: true}), "nor one without any")
	require.NoError(t, call(url, hubs(t, "key one", pair).dial(t, agent)))

	// While the gossip key is being changed, new agents accept the old and the new one.
	for _, key := range []string{"key one", "key two", "key two\nkey one", "key three\nkey one"} {
		changing := serveAgent(t, "key one\nkey two\n", agent, NewHubPin(discard()))
		require.NoError(t, call(changing, hubs(t, key, pair).dial(t, agent)), key)
	}

	// A hub that is older than agents' identities asks for no name and expects the gossip key.
	group := must(groupKeys("key one"))[0]
	shown := must(selfSigned(group))
	url = serveAgent(t, "key one", agent, NewHubPin(discard()))
	former := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{shown}, VerifyConnection: holds(publicOf([]ed25519.PrivateKey{group})...)}
	require.NoError(t, call(url, former))
	// A newer hub does not accept that.
	downgraded := hubs(t, "key one", pair).dial(t, agent)
	downgraded.ServerName = ""
	require.ErrorIs(t, call(url, downgraded), ErrPeer)

	_, err := ServeTLS("", agent, NewHubPin(discard()))
	require.ErrorIs(t, err, ErrKeyRequired)
	_, err = hubs(t, "", pair).DialTLS(agent.Key())
	require.ErrorIs(t, err, ErrKeyRequired)
	_, err = ServeTLS("k", Identity{}, NewHubPin(discard()))
	require.Error(t, err)
	for _, none := range []string{"", "short", "***"} {
		_, err = hubs(t, "k", pair).DialTLS(none)
		require.Error(t, err, "a hub that knows no address reaches nobody")
	}
}

// certificatesOf returns what the owner of a key shows.
func certificatesOf(t *testing.T, key ed25519.PublicKey) []*x509.Certificate {
	t.Helper()
	der := must(certify(key, newPair(), hubRole))
	return []*x509.Certificate{must(x509.ParseCertificate(der))}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestKeysAreApart(t *testing.T) {
	t.Parallel()
	a, err := derive("k", purposeGossip, 32)
	require.NoError(t, err)
	b, err := derive("k", purposeTLS, 32)
	require.NoError(t, err)
	require.NotEqual(t, a, b)
	c, err := derive("k", purposeGossip, 32)
	require.NoError(t, err)
	require.Equal(t, a, c)
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                        nil,
		" \n\r\n":                 nil,
		"a key with spaces ":      {"a key with spaces"},
		"new\nold\n":              {"new", "old"},
		"\n new \r\n\nold\nnew\n": {"new", "old"},
	} {
		require.Equal(t, want, Keys(text), "%q", text)
	}
}

// While the key of a group is changed one member at a time, all members keep
// hearing each other: all take the new key as the second, then as the first, then
// alone.
func TestChangingTheKey(t *testing.T) {
	t.Parallel()
	const before, after = "the key until now, long enough", "the key from now on, long enough"
	steps := []string{before, before + "\n" + after, after + "\n" + before, after}
	for n, one := range steps {
		for _, two := range steps[max(n-1, 0):min(n+2, len(steps))] {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				hub := enter(t, RoleHub, "hub", func(c *Config) { c.Key = one })
				defer leave(t, hub)
				agent := enter(t, RoleAgent, "agent", func(c *Config) { c.Key, c.Join = two, []string{hub.bind} })
				defer leave(t, agent)
				eventually(t, "the hub hears the agent", func() bool { return len(hub.heard()) > 0 })
				eventually(t, "the agent knows the hub", func() bool { return len(agent.Members()) == 1 })
			})
		}
	}
}
