package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
)

// infoOf is an answer of GET /object_info: classes as "module/Class", each with an
// input that offers files.
func infoOf(t *testing.T, classes map[string][]string) *catalog.Info {
	t.Helper()
	var parts []string
	for name, files := range classes {
		module, class, _ := strings.Cut(name, "/")
		quoted := make([]string, len(files))
		for n, f := range files {
			quoted[n] = fmt.Sprintf("%q", f)
		}
		parts = append(parts, fmt.Sprintf(`%q: {"input": {"required": {"file": [[%s]], "upload": [["x.png", %q], {"image_upload": true}]}}, "output": [], "python_module": %q}`,
			class, strings.Join(quoted, ","), class+"-own.png", module))
	}
	info, err := catalog.Parse([]byte("{" + strings.Join(parts, ",") + "}"))
	require.NoError(t, err)
	return info
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	same := infoOf(t, map[string][]string{"nodes/Loader": {"a.safetensors", "normal"}, "custom_nodes.Pack/One": nil, "custom_nodes.Pack/Two": nil})
	require.Empty(t, catalog.Differences(nil))
	require.Empty(t, catalog.Differences(map[string]*catalog.Info{"a": same, "b": same}))
	other := infoOf(t, map[string][]string{"nodes/Loader": {"a.safetensors", "b.safetensors", "karras"}, "nodes/Newer": nil, "custom_nodes.Pack/One": nil, "comfy_extras.nodes_x/Loader2": {"b.safetensors"}})
	bare := infoOf(t, map[string][]string{"nodes/Loader": {"a.safetensors"}})
	require.Equal(t, []catalog.Difference{
		{Kind: "package", Name: "Pack", Have: []string{"g1", "g2", "g3"}, Lack: []string{"g4"}},
		{Kind: "class", Name: "Loader2", Of: "ComfyUI", Have: []string{"g3"}, Lack: []string{"g1", "g2", "g4"}},
		{Kind: "class", Name: "Newer", Of: "ComfyUI", Have: []string{"g3"}, Lack: []string{"g1", "g2", "g4"}},
		{Kind: "class", Name: "Two", Of: "Pack", Have: []string{"g1", "g2"}, Lack: []string{"g3"}},
		{Kind: "file", Name: "b.safetensors", Of: "Loader.file", Have: []string{"g3"}, Lack: []string{"g1", "g2", "g4"}},
	}, catalog.Differences(map[string]*catalog.Info{"g1": same, "g2": same, "g3": other, "g4": bare}),
		"options that are no models, and uploads, do not count")
}
