//go:build unix

package redistest

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/engine"
)

// Fillable opens an empty server that full makes refuse to take more, although it answers, and later takes
// again. It may be in a bubble of testing/synctest.
func Fillable(t testing.TB) (db *redis.DB, full func(bool)) {
	t.Helper()
	server, err := engine.Open(engine.Options{Server: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	db = open(t, redis.Options{URL: "redis://fillable:6379?pool_size=1000", Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go server.Serve(theirs)
		return ours, nil
	}})
	return db, server.SetFull
}
