package gossip

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	serve := func(key string, id Identity) *httptest.Server {
		server, err := ServeTLS(key, id)
		require.NoError(t, err)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
		s.TLS = server
		s.Config.ErrorLog = newLog(slog.New(slog.DiscardHandler))
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	get := func(url string, client *tls.Config) error {
		transport := &http.Transport{TLSClientConfig: client}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport}).Get(url)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	dial := func(key string, id Identity) *tls.Config {
		client, err := DialTLS(key, id.Key())
		require.NoError(t, err)
		return client
	}
	agent, thief := NewIdentity(), NewIdentity()
	server := serve("key one", agent)
	require.NoError(t, get(server.URL, dial("key one", agent)))
	require.ErrorIs(t, get(server.URL, dial("key one", thief)), ErrPeer, "another machine of the group")
	require.Error(t, get(server.URL, dial("key two", agent)), "a client without the gossip key is not let in")
	require.Error(t, get(server.URL, &tls.Config{InsecureSkipVerify: true}), "nor one without any")
	withOwn := dial("key one", agent)
	withOwn.Certificates = []tls.Certificate{must(selfSigned(thief.private))}
	require.Error(t, get(server.URL, withOwn), "being somebody does not make one a hub")

	// While the key is being changed, agents accept the old and the new one.
	changing := serve("key one\nkey two\n", agent)
	for _, key := range []string{"key one", "key two", "key two\nkey one"} {
		require.NoError(t, get(changing.URL, dial(key, agent)), key)
	}
	require.Error(t, get(changing.URL, dial("key three\nkey one", agent)), "a hub shows its first key")

	// An older hub asks for no name and expects the gossip key.
	former := dial("key one", agent)
	former.ServerName, former.VerifyConnection = "", holds(publicOf(must(groupKeys("key one")))...)
	require.NoError(t, get(server.URL, former))
	// A newer hub does not accept that.
	downgraded := dial("key one", agent)
	downgraded.ServerName = ""
	require.ErrorIs(t, get(server.URL, downgraded), ErrPeer)

	_, err := ServeTLS("", agent)
	require.ErrorIs(t, err, ErrKeyRequired)
	_, err = DialTLS("", agent.Key())
	require.ErrorIs(t, err, ErrKeyRequired)
	_, err = ServeTLS("k", Identity{})
	require.Error(t, err)
	for _, none := range []string{"", "short", "***"} {
		_, err = DialTLS("k", none)
		require.Error(t, err, "a hub that knows no address reaches nobody")
	}
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
