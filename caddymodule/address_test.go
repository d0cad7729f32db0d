package caddymodule

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
)

// The root Caddyfile is valid with each of these addresses, and listens where
// COMFYHUB_ADDR and COMFYHUB_OPERATORS say, whatever the Host header is.
func TestRootCaddyfile(t *testing.T) {
	text, err := os.ReadFile("../Caddyfile")
	require.NoError(t, err)
	for addr, listen := range map[string]string{
		"":                "127.0.0.1:8188",
		":8188":           ":8188",
		":18188":          ":18188",
		"127.0.0.1:18188": "127.0.0.1:18188",
		"0.0.0.0:8188":    "0.0.0.0:8188",
		"[::1]:8190":      "[::1]:8190",
		"localhost:8190":  "localhost:8190",
		"localhost":       "localhost:8188",
	} {
		operators := map[bool]string{true: ":18187"}[addr == ":18188"]
		t.Run(addr, func(t *testing.T) {
			for _, variable := range []string{addrVariable, operatorsVariable} {
				for _, name := range []string{variable + hostEnding, variable + portEnding} {
					t.Setenv(name, "") // restored at the end
					require.NoError(t, os.Unsetenv(name))
				}
			}
			t.Setenv(addrVariable, addr)
			t.Setenv(operatorsVariable, operators)
			t.Setenv("COMFYHUB_GOSSIP_KEY", "")
			splitAddresses()

			adapted, err := adapt(t, string(text))
			require.NoError(t, err)
			var config struct {
				Apps struct {
					HTTP struct {
						Servers map[string]struct {
							Listen []string
							Routes []struct{ Match json.RawMessage }
						}
					}
				}
			}
			require.NoError(t, json.Unmarshal(adapted, &config))
			listens := []string{}
			for _, server := range config.Apps.HTTP.Servers {
				listens = append(listens, server.Listen...)
				require.Len(t, server.Routes, 1)
				require.Empty(t, server.Routes[0].Match)
			}
			require.ElementsMatch(t, []string{listen, map[string]string{"": "127.0.0.1:8187", ":18187": ":18187"}[operators]}, listens)

			var whole caddy.Config
			require.NoError(t, json.Unmarshal(adapted, &whole))
			whole.Admin = &caddy.AdminConfig{Disabled: true}
			require.NoError(t, caddy.Validate(&whole))
		})
	}
}

// Both secrets come from a variable or from a file, and the configuration that
// Caddy shows contains neither of them, nor the password of a Redis.
func TestRootCaddyfileTakesSecretsFromFiles(t *testing.T) {
	text, err := os.ReadFile("../Caddyfile")
	require.NoError(t, err)
	const gossip, secret, redis = "the key of the gossip", "the secret of the hub", "redis://:hunter2@redis:6379"
	folder := t.TempDir()
	for name, value := range map[string]string{"gossip": gossip, "secret": secret} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(value+"\n"), 0o600))
	}
	t.Setenv("COMFYHUB_REDIS", redis)
	for name, env := range map[string]map[string]string{
		"variables": {"COMFYHUB_GOSSIP_KEY": gossip, "COMFYHUB_SECRET": secret},
		"files": {
			"COMFYHUB_GOSSIP_KEY_FILE": filepath.Join(folder, "gossip"), "COMFYHUB_SECRET_FILE": filepath.Join(folder, "secret"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range env {
				t.Setenv(variable, value)
			}
			adapted, err := adapt(t, string(text))
			require.NoError(t, err)
			for _, hidden := range []string{gossip, secret, "hunter2"} {
				require.NotContains(t, string(adapted), hidden)
			}
			var config struct {
				Apps struct{ Comfyhub App }
			}
			require.NoError(t, json.Unmarshal(adapted, &config))
			app := &config.Apps.Comfyhub
			require.NoError(t, app.resolve(caddy.NewReplacer()))
			require.NoError(t, app.check())
			require.Equal(t, gossip, app.Gossip.Key)
			require.Equal(t, []string{secret}, app.Secret)
			require.Equal(t, redis, app.Redis)
		})
	}
}
