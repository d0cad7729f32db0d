package caddymodule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDrainDeadline(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90": 90 * time.Second, "1.5": 1500 * time.Millisecond, "10m": 10 * time.Minute, "1d": 24 * time.Hour, "30d": maxDeadline,
		"": 0, "0": 0, "-5": 0, "soon": 0, "31d": 0, "1e300": 0, "NaN": 0, "Inf": 0, "1us": 0,
	} {
		got, err := drainDeadline(text)
		require.Equal(t, want, got, text)
		require.Equal(t, want == 0, err != nil, text)
	}
}
