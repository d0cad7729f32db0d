package caddymodule

import (
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/scale"
)

func TestScaleOfACaddyfile(t *testing.T) {
	t.Setenv("TEST_SCALE_SECRET", "sixteen bytes or more")
	var a App
	require.NoError(t, a.UnmarshalCaddyfile(caddyfile.NewTestDispenser(`comfyhub {
		scale a10g {
			instances gpu-* cloud-*
			min 0
			max 4
			idle_after 10m
			price 1.2/h
			budget 20/day
			provider exec /usr/local/bin/machines --zone a
		}
		scale cpu {
			max 1
			provider webhook https://machines.example.com/cpu {env.TEST_SCALE_SECRET}
		}
	}`)))
	require.NoError(t, a.resolve(caddy.NewReplacer()))
	require.NoError(t, a.check())
	require.Equal(t, []scale.Class{
		{
			Name: "a10g", Instances: []string{"gpu-*", "cloud-*"}, Max: 4, IdleAfter: 10 * time.Minute, Price: 1.2, Budget: 20,
			Provider: scale.Exec{Command: []string{"/usr/local/bin/machines", "--zone", "a"}},
		},
		{Name: "cpu", Instances: []string{"cpu-*"}, Max: 1, IdleAfter: 5 * time.Minute, Provider: scale.Webhook{URL: "https://machines.example.com/cpu", Secret: "sixteen bytes or more"}},
	}, a.hubSettings().Scale)
}
