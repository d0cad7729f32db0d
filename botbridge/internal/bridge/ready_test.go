package bridge

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/config"
	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// A bridge that the hub does not let in is not ready, and says why.
func TestDeniedIsNotReady(t *testing.T) {
	t.Parallel()
	store := newStore(t, state.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	hub := must.Get(hubapi.New(server.URL, hubapi.Options{}))(t)
	defer hub.Close()
	b := &Bridge{store: store, hub: hub}
	ready := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		b.ready(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health/ready", http.NoBody))
		return w
	}
	require.Equal(t, http.StatusOK, ready().Code)
	_, err := hub.Stats(t.Context())
	require.ErrorIs(t, err, hubapi.ErrDenied)
	require.Equal(t, http.StatusServiceUnavailable, ready().Code)
	require.Contains(t, ready().Body.String(), "does not accept the key")
}

// A price that nobody can pay is found before anybody asks.
func TestPricesThatNobodyCanPay(t *testing.T) {
	t.Parallel()
	graph := []byte(`{"1": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}, "_meta": {"title": "count"}}}`)
	for _, c := range []struct {
		stars    int64
		telegram *config.Telegram
		want     string
	}{
		{0, nil, ""},
		{2500, &config.Telegram{}, ""},
		{2501, &config.Telegram{}, "command a: stars: 2501 for each of 4 pictures is more than the 10000 that Telegram takes at once"},
		{1, nil, "people can pay on Telegram only"},
	} {
		spec := workflow.Spec{Stars: c.stars, Inputs: map[workflow.Role]string{workflow.Count: "1.batch_size"}}
		command := must.Get(workflow.NewCommand("a", spec, graph))(t)
		got := errors.Join(sellProblems(&config.Config{Telegram: c.telegram, Commands: config.Commands{{Name: "a", Spec: spec}}}, []*workflow.Command{command})...)
		if c.want == "" {
			require.NoError(t, got)
		} else {
			require.ErrorContains(t, got, c.want)
		}
	}
}
