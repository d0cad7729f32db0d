//go:build unix

// Package redistest gives tests a Redis: the embedded one and, where there is
// a redis-server on the PATH, a real one.
package redistest

import (
	"log/slog"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// Both is Each for a test that runs beside others.
func Both(t *testing.T, test func(t *testing.T, db *redis.DB)) {
	t.Helper()
	t.Parallel()
	Each(t, test)
}

// Each runs a test on the embedded server and on a real one, each empty. The
// real one is skipped where there is no redis-server.
func Each(t *testing.T, test func(t *testing.T, db *redis.DB)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, Embedded(t))
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		test(t, Open(t, Start(t).URL()))
	})
}

// Embedded opens an embedded Redis with a journal in a folder of the test.
func Embedded(t testing.TB) *redis.DB {
	t.Helper()
	return OpenDir(t, t.TempDir())
}

// OpenDir opens an embedded Redis on a data folder.
func OpenDir(t testing.TB, dir string) *redis.DB {
	t.Helper()
	return open(t, redis.Options{URL: redis.Embedded, Dir: dir})
}

// Open opens the Redis at a URL.
func Open(t testing.TB, url string) *redis.DB {
	t.Helper()
	return open(t, redis.Options{URL: url})
}

// OpenReplicated opens the Redis at a URL. What is promised with Replicated scripts waits
// for n replicas.
func OpenReplicated(t testing.TB, url string, n int) *redis.DB {
	t.Helper()
	return open(t, redis.Options{URL: url, Replicas: n})
}

func open(t testing.TB, o redis.Options) *redis.DB {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	db, err := redis.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// binary finds redis-server or skips the test.
func binary(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server on the PATH")
	}
	return path
}
