package caddymodule

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
)

// The root Caddyfile is valid whatever the environment says, and listens where
// COMFYHUB_ADDR says without a condition on the Host header.
func TestRootCaddyfile(t *testing.T) {
	text, err := os.ReadFile("../Caddyfile")
	require.NoError(t, err)
	for addr, listen := range map[string]string{
		"":                ":8188",
		":18188":          ":18188",
		"127.0.0.1:18188": "127.0.0.1:18188",
		"0.0.0.0:8188":    "0.0.0.0:8188",
		"[::1]:8190":      "[::1]:8190",
		"localhost:8190":  "localhost:8190",
		"localhost":       "localhost:8188",
	} {
		t.Run(addr, func(t *testing.T) {
			for _, name := range []string{hostVariable, portVariable} {
				t.Setenv(name, "") // restored at the end
				require.NoError(t, os.Unsetenv(name))
			}
			t.Setenv(addrVariable, addr)
			t.Setenv("COMFYHUB_GOSSIP_KEY", "")
			splitAddr()

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
			server := config.Apps.HTTP.Servers["srv0"]
			require.Equal(t, []string{listen}, server.Listen)
			require.Len(t, server.Routes, 1)
			require.Empty(t, server.Routes[0].Match)

			var whole caddy.Config
			require.NoError(t, json.Unmarshal(adapted, &whole))
			whole.Admin = &caddy.AdminConfig{Disabled: true}
			require.NoError(t, caddy.Validate(&whole))
		})
	}
}
