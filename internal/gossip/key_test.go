package gossip

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"runtime"
	"sync"
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

	require.ErrorIs(t, errOf(ServeTLS("", agent, NewHubPin(discard()))), ErrKeyRequired)
	require.ErrorIs(t, errOf(hubs(t, "", pair).DialTLS(agent.Key())), ErrKeyRequired)
	require.Error(t, errOf(ServeTLS("k", Identity{}, NewHubPin(discard()))))
	for _, none := range []string{"", "short", "***"} {
		require.Error(t, errOf(hubs(t, "k", pair).DialTLS(none)), "a hub that knows no address reaches nobody")
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
	a := must(derive("k", purposeGossip, 32))
	require.NotEqual(t, a, must(derive("k", purposeTLS, 32)))
	require.Equal(t, a, must(derive("k", purposeGossip, 32)))
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
		for _, two := range steps[n:min(n+2, len(steps))] {
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

func TestIdentityLasts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "state", "box.key")
	// Two processes with the same name start at the same time for the first time.
	keys := make([]string, 8)
	var work sync.WaitGroup
	for n := range keys {
		work.Go(func() {
			id, err := LoadIdentity(file)
			if err == nil {
				keys[n] = id.Key()
			}
		})
	}
	work.Wait()
	require.NotEmpty(t, keys[0])
	for _, k := range keys {
		require.Equal(t, keys[0], k)
	}
	require.EqualValues(t, 0o600, must(os.Stat(file)).Mode().Perm())
	require.Len(t, must(os.ReadDir(filepath.Dir(file))), 1, "no drafts are left")

	other := must(LoadIdentity(filepath.Join(filepath.Dir(file), "other.key")))
	require.NotEqual(t, keys[0], other.Key())
	require.NotEqual(t, Fingerprint(keys[0]), Fingerprint(other.Key()))
	require.Equal(t, "none", Fingerprint(Identity{}.Key()))
}

// A key that cannot be read must not be replaced: hubs would take the machine for
// another one.
func TestIdentityIsNeverReplaced(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty": "", "cut off": "-----BEGIN PRIVATE KEY-----\nMC4CAQAw", "another kind": "-----BEGIN CERTIFICATE-----\nMC4=\n-----END CERTIFICATE-----\n",
		"garbage in PEM": "-----BEGIN PRIVATE KEY-----\nMC4=\n-----END PRIVATE KEY-----\n",
	} {
		file := filepath.Join(t.TempDir(), "key")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.ErrorContains(t, errOf(LoadIdentity(file)), "agent key", name)
		require.Equal(t, text, string(must(os.ReadFile(file))))
	}
	if runtime.GOOS == "windows" {
		return
	}
	file := filepath.Join(t.TempDir(), "key")
	must(LoadIdentity(file))
	require.NoError(t, os.Chmod(file, 0o640))
	require.ErrorContains(t, errOf(LoadIdentity(file)), "others may read it")
}

// errOf returns the error of a call alone.
func errOf[T any](_ T, err error) error { return err }
