package peers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// Claims and look-ups find the hub in the record of a client, and both look-ups and renewals have a list of
// clients.
func TestWhoDeclaresKeys(t *testing.T) {
	t.Parallel()
	for _, s := range []*redis.Script{releaseScript, heartbeatScript, leaveScript, putBlobScript, dropBlobScript} {
		require.True(t, s.DeclaresKeys(), s.Name())
	}
	for _, s := range []*redis.Script{claimScript, renewScript, ownersScript} {
		require.False(t, s.DeclaresKeys(), s.Name())
	}
}
