package caddymodule

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The Caddyfile of the Kubernetes manifests, which adds to the one in the image, is valid,
// and shows the cluster nothing of the admin endpoint but state and metrics.
func TestCaddyfileOfKubernetes(t *testing.T) {
	t.Parallel()
	file, err := os.Open("../docker/kubernetes/hub.yaml")
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	var config struct {
		Kind string
		Data map[string]string
	}
	for decoder := yaml.NewDecoder(file); config.Kind != "ConfigMap"; {
		require.NoError(t, decoder.Decode(&config))
	}
	image, err := filepath.Abs("../Caddyfile")
	require.NoError(t, err)
	text := config.Data["Caddyfile"]
	require.Contains(t, text, "import /etc/caddy/Caddyfile")
	adapted, err := adapt(t, strings.Replace(text, "/etc/caddy/Caddyfile", image, 1))
	require.NoError(t, err)
	require.Contains(t, string(adapted), `{"match":[{"path":["/metrics","/comfyhub/ready","/comfyhub/live"]}]`)
	require.Contains(t, string(adapted), `"handler":"comfyhub"`)
}
