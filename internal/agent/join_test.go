package agent

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/tunnel"
)

// A machine that misses the answer, or restarts, asks for the same token again, so that one that is
// good once is good for it.
func TestJoin(t *testing.T) {
	var asked []string
	lose := true
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hash, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Equal(t, "gpu-1:once-ABC", tunnel.Token(r))
		assert.Equal(t, "POST "+tunnel.Path, r.Method+" "+r.URL.Path)
		asked = append(asked, string(hash))
		switch {
		case lose:
			lose = false
			panic(http.ErrAbortHandler)
		case string(hash) != asked[0]:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer hub.Close()
	j := &joiner{hubs: []string{hub.URL}, once: "gpu-1:once-ABC", state: t.TempDir(), userAgent: "test", client: hub.Client(), log: slog.New(slog.DiscardHandler)}
	own, err := j.join(t.Context())
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(own, "gpu-1:"))
	require.False(t, tunnel.IsOnce(own))
	require.Len(t, asked[0], tunnel.HashSize)
	again, err := j.join(t.Context())
	require.NoError(t, err)
	require.Equal(t, own, again)
	require.Len(t, asked, 3)

	// Another machine with the same token is refused.
	j.state = t.TempDir()
	_, err = j.join(t.Context())
	require.ErrorIs(t, err, tunnel.ErrToken)
}
