package caddymodule

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
)

func TestOverflowOfACaddyfile(t *testing.T) {
	t.Setenv("TEST_RUNPOD_KEY", "a key")
	info := filepath.Join(t.TempDir(), "object_info.json")
	require.NoError(t, os.WriteFile(info, []byte(`{}`), 0o600))
	t.Setenv("TEST_OBJECT_INFO", info)
	var a App
	require.NoError(t, a.UnmarshalCaddyfile(caddyfile.NewTestDispenser(`comfyhub {
		overflow runpod {
			endpoint abc123
			key {env.TEST_RUNPOD_KEY}
			after 45s
			budget 20/day
			price 0.00031/s
			max 4
			only class_type KSampler CLIP*
			private inputs secrets
			object_info {env.TEST_OBJECT_INFO}
			files_from bucket.example.com
		}
		overflow http {
			url https://gpus.example.com/comfy
		}
	}`)))
	require.NoError(t, a.resolve(caddy.NewReplacer()))
	require.NoError(t, a.check())
	require.Equal(t, []config.Overflow{
		{
			Name: "abc123", RunPod: "abc123", Key: "a key", After: 45 * time.Second, Budget: 20, Price: 0.00031, Max: 4, Timeout: 10 * time.Minute,
			Only: []string{"KSampler", "CLIP*"}, Inputs: true, Secrets: true, ObjectInfo: []byte(`{}`), FilesFrom: hostsOf([]string{"bucket.example.com"}),
		},
		{Name: "gpus.example.com", URL: "https://gpus.example.com/comfy", After: 30 * time.Second, Max: 1, Timeout: 10 * time.Minute, FilesFrom: hostsOf([]string{"*"})},
	}, a.hubSettings().Overflow)
}

func TestOverflowThatIsWrong(t *testing.T) {
	t.Parallel()
	for lines, why := range map[string]string{
		"overflow":                                                                                "overflow takes runpod or http",
		"overflow runpod":                                                                         "overflow takes a block",
		"overflow modal {\nmax 1\n}":                                                              `"modal" is not one of runpod, http`,
		"overflow runpod {\nmax 1\n}":                                                             "runpod takes an endpoint",
		"overflow runpod {\nendpoint a\n}":                                                        "runpod needs a key",
		"overflow runpod {\nendpoint a\nkey secret\n}":                                            "key",
		"overflow runpod {\nendpoint a/b\nkey {env.A}\n}":                                         "is not the id of an endpoint",
		"overflow http {\nendpoint a\n}":                                                          "http takes a url",
		"overflow http {\nurl http://a.example.com\n}":                                            "not https",
		"overflow http {\nurl https://a.example/\nbudget 1/day\n}":                                "budget needs a price",
		"overflow http {\nurl https://a.example/\nmax 65\n}":                                      "max: want 1 to 64",
		"overflow http {\nurl https://a.example/\ntimeout 5s\n}":                                  "timeout: want 6s",
		"overflow http {\nurl https://a.example/\nonly A\n}":                                      "only takes class_type",
		"overflow http {\nurl https://a.example/\nprivate everything\n}":                          `"everything" is not one of inputs, secrets`,
		"overflow http {\nurl https://a.example/\n}\noverflow http {\nurl https://a.example/b\n}": "a.example is given twice",
	} {
		var a App
		err := a.UnmarshalCaddyfile(caddyfile.NewTestDispenser("comfyhub {\n" + lines + "\n}"))
		require.ErrorContains(t, err, why, lines)
	}
}
