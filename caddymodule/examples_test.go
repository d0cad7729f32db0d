package caddymodule

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

var caddyfileBlock = regexp.MustCompile("(?ms)^```caddyfile\n(.*?)^```$")

// TestExamples adapts each Caddyfile that the docs show.
func TestExamples(t *testing.T) {
	t.Parallel()
	pages := must.Get(filepath.Glob("../docs/*.md"))(t)
	examples := 0
	for _, page := range append(pages, "../README.md", "../SECURITY.md") {
		text := must.Get(os.ReadFile(page))(t)
		for n, found := range caddyfileBlock.FindAllStringSubmatch(string(text), -1) {
			examples++
			t.Run(fmt.Sprint(filepath.Base(page), " ", n+1), func(t *testing.T) {
				t.Parallel()
				require.NoError(t, adapts(t, found[1]), found[1])
			})
		}
	}
	require.Greater(t, examples, 20)
}

// adapts adapts an example. One that begins with comfyhub is either the app's options or the
// handler's.
func adapts(t *testing.T, example string) error {
	t.Helper()
	forms := []string{example}
	if strings.HasPrefix(example, "comfyhub") {
		forms = []string{"{\n" + example + "}\n", ":80 {\n" + example + "}\n"}
	}
	var err error
	for _, form := range forms {
		if _, err = adapt(t, form); err == nil {
			return nil
		}
	}
	return err
}

func TestAdapts(t *testing.T) {
	t.Parallel()
	for example, want := range map[string]bool{
		"comfyhub {\n\tkeys required\n}\n":                 true,
		"comfyhub {\n\tinstance http://10.0.0.5:8188\n}\n": true,
		"comfyhub {\n\tno_such_word 1\n}\n":                false,
		"{\n\tcomfyhub {\n\t\tno_such_word\n\t}\n}\n":      false,
	} {
		require.Equal(t, want, adapts(t, example) == nil, example)
	}
}

// The Caddyfile of the Kubernetes manifests, which adds to the one in the image, is valid,
// and shows the cluster nothing of the admin endpoint but state and metrics.
func TestCaddyfileOfKubernetes(t *testing.T) {
	t.Parallel()
	file := must.Get(os.Open("../docker/kubernetes/hub.yaml"))(t)
	defer func() { require.NoError(t, file.Close()) }()
	var config struct {
		Kind string
		Data map[string]string
	}
	for decoder := yaml.NewDecoder(file); config.Kind != "ConfigMap"; {
		require.NoError(t, decoder.Decode(&config))
	}
	image := must.Get(filepath.Abs("../Caddyfile"))(t)
	text := config.Data["Caddyfile"]
	require.Contains(t, text, "import /etc/caddy/Caddyfile")
	adapted := must.Get(adapt(t, strings.Replace(text, "/etc/caddy/Caddyfile", image, 1)))(t)
	require.Contains(t, string(adapted), `{"match":[{"path":["/metrics","/comfyhub/ready","/comfyhub/live"]}]`)
	require.Contains(t, string(adapted), `"handler":"comfyhub"`)
}

// The root Caddyfile is valid with each of these addresses, and listens where
// COMFYHUB_ADDR and COMFYHUB_OPERATORS say, whatever the Host header is.
func TestRootCaddyfile(t *testing.T) {
	text := must.Get(os.ReadFile("../Caddyfile"))(t)
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

			adapted := must.Get(adapt(t, string(text)))(t)
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
	text := must.Get(os.ReadFile("../Caddyfile"))(t)
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
			adapted := must.Get(adapt(t, string(text)))(t)
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

// The Caddyfile that a hub on AWS writes by docker/terraform/hub.sh is one, with GPU machines that come and
// go and without.
func TestTerraformCaddyfile(t *testing.T) {
	t.Parallel()
	script := string(must.Get(os.ReadFile("../docker/terraform/hub.sh"))(t))
	_, text, found := strings.Cut(script, "cat >/etc/comfyhub/Caddyfile <<END\n")
	require.True(t, found)
	text, _, found = strings.Cut(text, "\nEND\n")
	require.True(t, found)
	for scale, want := range map[string]string{"": `"operators":["ada"]`, "scale gpu {\nmax 4\nprovider ec2 comfyhub-gpu eu-central-1\n}": `"ec2":"comfyhub-gpu"`} {
		cmd := exec.Command("sh", "-c", "cat <<END\n"+text+"\nEND\n") // #nosec G204 -- our own script
		cmd.Env = []string{"HOST=hub.example.com", "OPERATORS=ada", "LOGINS=ada $2a$14$qqqqqqqqqqqqqqqqqqqqqOqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq\nbob $2a$14$qqqqqqqqqqqqqqqqqqqqqOqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", "SCALE=" + scale}
		config, err := adapt(t, string(must.Get(cmd.Output())(t)))
		require.NoError(t, err)
		require.Contains(t, string(config), want)
		require.Contains(t, string(config), `"not":[{"path":["/hub/tunnel"]}]`)
	}
}
