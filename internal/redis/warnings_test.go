package redis

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTooOld(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"6.2.14": true, "5.0.7": true, "7.0.15": false, "7.2.4": false, "8.0.2": false, "10.0.0": false, "": false, "df-v1": false} {
		require.Equal(t, want, tooOld(version), version)
	}
}
