package gossip

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// An agent that starts before its network is up waits for it.
func TestAwaitRoute(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, nil))
		found := []string{"", "", "10.0.0.7"}
		began := time.Now()
		require.NoError(t, awaitRoute(t.Context(), func() string {
			next := found[0]
			found = found[1:]
			return next
		}, log))
		require.Empty(t, found)
		require.Equal(t, 2*routeEvery, time.Since(began))
		require.Equal(t, 1, strings.Count(said.String(), "waiting for its network"))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, awaitRoute(ctx, func() string { return "" }, log), context.DeadlineExceeded)
	})
}

// Only one that has to find its address waits.
func TestNobodyElseAwaitsARoute(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []Config{
		{Bind: "127.0.0.1:0", Join: []string{"192.0.2.1"}},
		{Bind: ":7946", Join: []string{"127.0.0.1:7946", "localhost", "[::1]:7946"}},
		{Bind: ":7946", Join: []string{"192.0.2.1"}, Advertise: "10.0.0.7"},
		{Bind: ":7946"},
	} {
		c.Logger = slog.New(slog.DiscardHandler)
		require.NoError(t, c.AwaitRoute(ctx))
	}
}
