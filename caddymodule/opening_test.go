package caddymodule_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// A configuration loads while Redis is away, and again, and serves once it is there.
func TestLoadWhileRedisIsAway(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	s := newSite(t)
	for _, limit := range []string{"max_upload 1MiB", "max_upload 1KiB"} {
		require.NoError(t, s.load("redis "+server.URL()+"\n"+limit))
		status, answer := s.call(http.MethodGet, s.api, "/queue", "")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, answer, `"type": "starting"`)
		status, answer = s.call(http.MethodGet, s.admin, "/comfyhub/ready", "")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, answer, "redis: unavailable")
		status, answer = s.call(http.MethodGet, s.admin, "/comfyhub/instances", "")
		require.Equal(t, http.StatusOK, status, answer)
		for _, path := range []string{"/comfyhub/rotate-keys", "/comfyhub/forget?agent=none"} {
			status, answer = s.call(http.MethodPost, s.admin, path, "")
			require.Equal(t, http.StatusServiceUnavailable, status, answer)
		}
	}
	server.Start()
	s.ready()
	s.dial("ann").awaitEnd(s.prompt("ann", 0.1, 1))
	require.Equal(t, http.StatusRequestEntityTooLarge, s.postSized(2<<10), "the second configuration is in force")
}
