package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSameOrigin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		origin, host string
		secure, same bool
	}{
		{"http://hub:8187", "hub:8187", false, true},
		{"http://HUB:8187", "hub:8187", false, true},
		{"http://hub", "hub", false, true},
		{"http://hub", "hub:80", false, true},
		{"https://hub", "hub", false, true}, // TLS ends at a proxy
		{"https://hub", "hub", true, true},
		{"https://hub", "hub:443", true, true},
		{"http://[::1]:8187", "[::1]:8187", false, true},
		{"http://hub", "hub", true, false},
		{"http://hub:8188", "hub:8187", false, false},
		{"http://hub", "hub:8187", false, false},
		{"http://hub:8187", "hub", false, false},
		{"http://hub:8187", "", false, false},
		{"https://hub:80", "hub", true, false},
		{"http://other:8187", "hub:8187", false, false},
		{"file://", "hub", false, false},
		{"app://hub:8187", "hub:8187", false, false},
		{"null", "hub", false, false},
		{"", "hub", false, false},
	} {
		require.Equal(t, c.same, sameOrigin(c.origin, c.host, c.secure), "%+v", c)
	}
}
