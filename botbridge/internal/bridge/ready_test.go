package bridge

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// A bridge that the hub does not let in is not ready, and says why.
func TestDeniedIsNotReady(t *testing.T) {
	t.Parallel()
	store, err := state.Open(context.WithoutCancel(t.Context()), state.Place{URL: "embedded", Dir: t.TempDir(), Prefix: "bot"}, state.Options{})
	require.NoError(t, err)
	defer store.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	hub, err := hubapi.New(server.URL, hubapi.Options{})
	require.NoError(t, err)
	defer hub.Close()
	b := &Bridge{store: store, hub: hub}
	ready := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		b.ready(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health/ready", http.NoBody))
		return w
	}
	require.Equal(t, http.StatusOK, ready().Code)
	_, err = hub.Stats(t.Context())
	require.ErrorIs(t, err, hubapi.ErrDenied)
	require.Equal(t, http.StatusServiceUnavailable, ready().Code)
	require.Contains(t, ready().Body.String(), "does not accept the key")
}
