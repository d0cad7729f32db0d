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
	serve := func(key string) *httptest.Server {
		server, _, err := TLS(key)
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
	server := serve("key one")
	_, same, err := TLS("key one")
	require.NoError(t, err)
	_, other, err := TLS("key two")
	require.NoError(t, err)
	require.NoError(t, get(server.URL, same), "two processes derive the same pair")
	require.ErrorIs(t, get(server.URL, other), ErrPeer)
	require.Error(t, get(server.URL, &tls.Config{InsecureSkipVerify: true}), "a client without the key is not let in")

	// A stranger who accepts every server is still not accepted by it.
	gullible := other.Clone()
	gullible.VerifyConnection = nil
	require.Error(t, get(server.URL, gullible))

	// And a server without the key is not trusted.
	require.ErrorIs(t, get(serve("key two").URL, same), ErrPeer)

	_, _, err = TLS("")
	require.ErrorIs(t, err, ErrKeyRequired)
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
