package gossip

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/logs/logtest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	agent, thief, pair := NewIdentity(), NewIdentity(), newPair()
	url := serveAgent(t, "key one", agent, NewHubPin(discard()))
	require.ErrorIs(t, call(url, hubs(t, "key one", pair).dial(thief)), ErrPeer, "another machine of the group")
	require.Error(t, call(url, hubs(t, "key two", pair).dial(agent)), "a client without the gossip key is not let in")
	require.Error(t, call(url, &tls.Config{InsecureSkipVerify: true}), "nor one without any")
	require.NoError(t, call(url, hubs(t, "key one", pair).dial(agent)))

	// While the gossip key is being changed, new agents accept the old and the new one.
	for _, key := range []string{"key one", "key two", "key two\nkey one", "key three\nkey one"} {
		changing := serveAgent(t, "key one\nkey two\n", agent, NewHubPin(discard()))
		require.NoError(t, call(changing, hubs(t, key, pair).dial(agent)), key)
	}

	// A hub that is older than agents' identities asks for no name and expects the gossip key.
	group := must(groupKeys("key one"))[0]
	shown := must(selfSigned(group))
	url = serveAgent(t, "key one", agent, NewHubPin(discard()))
	former := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{shown}, VerifyConnection: holds(publicOf([]ed25519.PrivateKey{group})...)}
	require.NoError(t, call(url, former))
	// A newer hub does not accept that.
	downgraded := hubs(t, "key one", pair).dial(agent)
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
func certificatesOf(key ed25519.PublicKey) []*x509.Certificate {
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
				agent := enter(t, RoleAgent, "agent", func(c *Config) { c.Key, c.Join = two, []string{hub.bind} })
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

const groupKey = "the key of the group"

// newPair makes one of the hubs' own key pairs.
func newPair() ed25519.PrivateKey { return NewIdentity().private }

// hubs are the hubs with these key pairs, of which the first is in use.
func hubs(t *testing.T, key string, pairs ...ed25519.PrivateKey) *Authority {
	a := must(NewAuthority(key, func() ([]ed25519.PrivateKey, error) { return pairs, nil }))
	return a
}

// dial is the TLS configuration with which hubs call an agent.
func (a *Authority) dial(agent Identity) *tls.Config {
	client := must(a.DialTLS(agent.Key()))
	return client
}

// serveAgent serves as an agent does, and returns the URL.
func serveAgent(t *testing.T, key string, id Identity, pin *HubPin) string {
	server := must(ServeTLS(key, id, pin))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	s.TLS = server
	s.Config.ErrorLog = newLog(slog.New(slog.DiscardHandler))
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// call calls an agent over a connection of its own.
func call(url string, client *tls.Config) error {
	transport := &http.Transport{TLSClientConfig: client}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// openPin opens what an agent knows of its hubs.
func openPin(t *testing.T, file, given string, log *logtest.Log) *HubPin {
	logger := discard()
	if log != nil {
		logger = slog.New(slog.NewTextHandler(log, nil))
	}
	p := must(OpenHubPin(file, given, logger))
	return p
}

// showing presents certificates, with the key of the first or without.
func showing(agent Identity, key ed25519.PrivateKey, certificates ...[]byte) *tls.Config {
	client := must(must(NewAuthority(groupKey, nil)).DialTLS(agent.Key()))
	client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &tls.Certificate{Certificate: certificates, PrivateKey: key}, nil
	}
	return client
}

// A stolen machine has the gossip key, its own key, and all that hubs have shown to it. It
// opens no other agent that knows the hubs.
func TestAgentsListenToHubsOnly(t *testing.T) {
	t.Parallel()
	agent, thief, pair := NewIdentity(), newPair(), newPair()
	group := must(groupKeys(groupKey))[0]
	fleet := hubs(t, groupKey, pair)
	var log logtest.Log
	file := filepath.Join(t.TempDir(), "state", "box.hub")
	url := serveAgent(t, groupKey, agent, openPin(t, file, "", &log))
	require.Error(t, call(url, hubs(t, "another group", pair).dial(agent)), "not the first one either without the gossip key")
	require.NoError(t, call(url, fleet.dial(agent)), "the first hub")

	own, public := must(certify(publicOf([]ed25519.PrivateKey{thief})[0], thief, hubRole)), publicOf([]ed25519.PrivateKey{thief})[0]
	attempts := map[string]*tls.Config{
		"nothing":                            {InsecureSkipVerify: true},
		"the gossip key":                     showing(agent, group, must(selfSigned(group)).Certificate[0]),
		"the gossip key as a hub's":          showing(agent, group, must(certify(publicOf([]ed25519.PrivateKey{group})[0], group, hubRole))),
		"its own key":                        showing(agent, thief, must(selfSigned(thief)).Certificate[0]),
		"its own key as a hub's":             showing(agent, thief, own),
		"that, signed by the gossip key":     showing(agent, thief, own, must(certify(public, group, hubRole))),
		"the hub's certificates":             showing(agent, thief, must(fleet.certificate()).Certificate...),
		"those behind its own":               showing(agent, thief, append([][]byte{own}, must(fleet.certificate()).Certificate...)...),
		"a hub of another storage":           hubs(t, groupKey, newPair()).dial(agent),
		"one that claims to replace the key": hubs(t, groupKey, thief, newPair()).dial(agent),
	}
	for round, at := range []string{url, serveAgent(t, groupKey, agent, openPin(t, file, "", &log))} {
		for what, with := range attempts {
			require.Error(t, call(at, with), "%s, %d", what, round)
		}
		require.NoError(t, call(at, fleet.dial(agent)), round)
	}
	require.Contains(t, log.String(), "refused a hub whose key is not that of this agent's hubs; if the storage of the hubs was replaced, delete the file or give --hub-key")
	require.Contains(t, log.String(), "file="+file)
	require.Contains(t, log.String(), "shows nothing but the gossip key")
	require.EqualValues(t, 0o600, must(os.Stat(file)).Mode().Perm())
	require.NoError(t, call(serveAgent(t, "another gossip key", agent, openPin(t, file, "", nil)), fleet.dial(agent)), "a hub is known by its own key alone")

	require.NoError(t, os.Remove(file))
	next := hubs(t, groupKey, newPair())
	require.NoError(t, call(serveAgent(t, groupKey, agent, openPin(t, file, "", nil)), next.dial(agent)), "reset")

	for _, text := range []string{"no key\n", "", "\n"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.ErrorContains(t, errOf(OpenHubPin(file, "", discard())), "delete it")
	}
	require.NoError(t, errOf(OpenHubPin(file, must(fleet.Key()), discard())), "which the given key replaces")
}

// The hubs' key changes without a moment in which an agent refuses a hub; agents that were
// away meanwhile learn the new one as long as a hub has the old one.
func TestHubsChangeTheirKey(t *testing.T) {
	t.Parallel()
	agent, first, second, third := NewIdentity(), newPair(), newPair(), newPair()
	file := filepath.Join(t.TempDir(), "box.hub")
	pin := openPin(t, file, "", nil)
	url := serveAgent(t, groupKey, agent, pin)
	require.NoError(t, call(url, hubs(t, groupKey, first).dial(agent)))
	changed := hubs(t, groupKey, second, first)
	require.NoError(t, call(url, changed.dial(agent)))
	require.NoError(t, call(url, hubs(t, groupKey, first).dial(agent)), "a hub whose clock is behind")
	require.NoError(t, call(url, changed.dial(agent)))

	again := serveAgent(t, groupKey, agent, openPin(t, file, "", nil))
	require.Error(t, call(again, hubs(t, groupKey, first).dial(agent)), "that has ended")
	require.Error(t, call(again, hubs(t, groupKey, third, first).dial(agent)), "the old key vouches for nobody any more")
	require.NoError(t, call(again, hubs(t, groupKey, third, second, first).dial(agent)))
	require.NoError(t, call(serveAgent(t, groupKey, agent, openPin(t, file, "", nil)), hubs(t, groupKey, third).dial(agent)))

	// The key in use is asked for with each connection.
	pairs := []ed25519.PrivateKey{third}
	var broken error
	changing := must(NewAuthority(groupKey, func() ([]ed25519.PrivateKey, error) { return pairs, broken }))
	client := changing.dial(agent)
	require.NoError(t, call(again, client))
	pairs = []ed25519.PrivateKey{newPair(), third}
	require.NoError(t, call(again, client))
	broken = errors.New("the storage is away")
	require.ErrorIs(t, call(again, client), broken)
	require.ErrorIs(t, errOf(changing.Key()), broken)
}

// A replaced key counts for minutes only.
func TestReplacedHubKeyEnds(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		old, next := publicOf([]ed25519.PrivateKey{newPair()})[0], newPair()
		pin := NewHubPin(discard())
		pin.take(keyText(old))
		pin.former, pin.formerUntil = keyText(old), time.Now().Add(formerFor)
		pin.take(Identity{next}.Key())
		state := func() tls.ConnectionState { return tls.ConnectionState{PeerCertificates: certificatesOf(old)} }
		require.NoError(t, pin.accept(state(), nil))
		time.Sleep(formerFor)
		require.ErrorIs(t, pin.accept(state(), nil), ErrPeer)
	})
}

// An agent that was given the hubs' key listens to nobody else from the beginning.
func TestGivenHubKey(t *testing.T) {
	t.Parallel()
	agent, pair := NewIdentity(), newPair()
	fleet := hubs(t, groupKey, pair)
	given := must(fleet.Key())
	file := filepath.Join(t.TempDir(), "box.hub")
	url := serveAgent(t, groupKey, agent, openPin(t, file, given, nil))
	require.Error(t, call(url, hubs(t, groupKey, newPair()).dial(agent)))
	require.Error(t, call(url, showing(agent, must(groupKeys(groupKey))[0], must(selfSigned(must(groupKeys(groupKey))[0])).Certificate[0])), "an older hub neither")
	require.NoError(t, call(url, fleet.dial(agent)))

	// The hubs change their key, and the agent is started again with the same flags.
	second := newPair()
	require.NoError(t, call(url, hubs(t, groupKey, second, pair).dial(agent)))
	again := openPin(t, file, given, nil)
	require.NoError(t, call(serveAgent(t, groupKey, agent, again), hubs(t, groupKey, second).dial(agent)))
	// Then with the new one, and with that of another fleet.
	openPin(t, file, Identity{second}.Key(), nil)
	require.Equal(t, Identity{second}.Key()+"\n", string(must(os.ReadFile(file))))
	other := newPair()
	moved := serveAgent(t, groupKey, agent, openPin(t, file, Identity{other}.Key(), nil))
	require.Error(t, call(moved, hubs(t, groupKey, second).dial(agent)))
	require.NoError(t, call(moved, hubs(t, groupKey, other).dial(agent)))
	for _, bad := range []string{"word", strings.Repeat("A", 44)} {
		require.ErrorContains(t, errOf(OpenHubPin("", bad, discard())), "comfyhub hub-key")
	}
}

// While a fleet is upgraded, hubs and agents of the version before work with those of this
// one, as safely as with each other.
func TestVersionBeforeHubKeys(t *testing.T) {
	t.Parallel()
	agent, pair := NewIdentity(), newPair()
	group := must(groupKeys(groupKey))[0]
	fleet := hubs(t, groupKey, pair)

	before := must(ServeTLS(groupKey, agent, NewHubPin(discard())))
	before.ClientCAs, before.VerifyConnection = nil, holds(publicOf([]ed25519.PrivateKey{group})...)
	old := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	old.TLS = before
	old.StartTLS()
	defer old.Close()
	require.NoError(t, call(old.URL, fleet.dial(agent)), "an older agent")

	var log logtest.Log
	url := serveAgent(t, groupKey, agent, openPin(t, "", "", &log))
	hub := fleet.dial(agent)
	hub.GetClientCertificate, hub.Certificates = nil, []tls.Certificate{must(selfSigned(group))}
	require.NoError(t, call(url, hub), "an older hub")
	require.Contains(t, log.String(), "a hub is older than this agent")
	require.NoError(t, call(url, fleet.dial(agent)))
	require.Error(t, call(url, hub), "not once the agent knows the hubs' key")
	require.Contains(t, log.String(), "must be upgraded")
}
