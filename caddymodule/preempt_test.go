package caddymodule

import (
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"
)

func TestPreemptHasADefault(t *testing.T) {
	t.Parallel()
	var a App
	require.NoError(t, a.UnmarshalCaddyfile(caddyfile.NewTestDispenser("comfyhub {\npreempt bulk\n}")))
	require.Equal(t, caddy.Duration(5*time.Second), a.PreemptBulk)
	require.Equal(t, 5*time.Second, a.hubSettings().PreemptBulk)
}
