package caddymodule

import (
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/scale/ec2"
	"github.com/comfyhub/comfyhub/internal/scale/kubernetes"
)

func TestProvidersOfACaddyfile(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]scale.Provider{
		"kubernetes comfyui":            kubernetes.Deployment{Name: "comfyui"},
		"kubernetes gpus/comfyui":       kubernetes.Deployment{Namespace: "gpus", Name: "comfyui"},
		"ec2 a10g":                      ec2.Group{Name: "a10g"},
		"ec2 a10g eu-central-1":         ec2.Group{Name: "a10g", Region: "eu-central-1"},
		"ec2 \"a group\" us-gov-west-1": ec2.Group{Name: "a group", Region: "us-gov-west-1"},
	} {
		var a App
		require.NoError(t, a.UnmarshalCaddyfile(caddyfile.NewTestDispenser("comfyhub {\nscale gpu {\nmax 2\nprovider "+line+"\n}\n}")), line)
		require.Equal(t, want, a.hubSettings().Scale[0].Provider, line)
	}
	var a App
	require.NoError(t, a.UnmarshalCaddyfile(caddyfile.NewTestDispenser("comfyhub {\nscale gpu {\nmax 2\ntokens 20m\nprovider exec x\n}\n}")))
	require.Equal(t, 20*time.Minute, a.hubSettings().Scale[0].Joins)
}

func TestMistakesInProviders(t *testing.T) {
	t.Parallel()
	for lines, want := range map[string]string{
		"provider kubernetes":                       "provider kubernetes takes a Deployment",
		"provider kubernetes a/b/c":                 `"a/b/c" is no name of a Deployment`,
		"provider ec2":                              "provider ec2 takes an Auto Scaling group",
		"provider ec2 a10g Frankfurt":               `"Frankfurt" is no region`,
		"tokens 1h\nprovider ec2 a10g":              "tokens: only exec and webhook",
		"tokens 25h\nprovider exec x":               "tokens: they are valid for 24h0m0s at most",
		"instances gpu\ntokens 1h\nprovider exec x": "tokens: new machines need names",
	} {
		var a App
		err := a.UnmarshalCaddyfile(caddyfile.NewTestDispenser("comfyhub {\nscale gpu {\nmax 2\n" + lines + "\n}\n}"))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "Testfile:", "file and line are told")
	}
}
