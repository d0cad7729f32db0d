package catalog_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The workflows that come with the bot bridge run on old and new servers: they
// may lack a model or a picture, and nothing else.
func TestExamplesFitAllReleases(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join("..", "..", "examples", "bot", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		graph, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, v := range []release{older, newer} {
			verdict := validate(t, fleet(info(t, v)), v, string(graph))
			if verdict.Accepted() {
				continue
			}
			var refused struct {
				Nodes map[string]struct {
					Errors []struct{ Type, Details string }
				} `json:"node_errors"`
			}
			require.NoError(t, json.Unmarshal(verdict.Answer.Body, &refused))
			require.NotEmpty(t, refused.Nodes, "%s: %s", path, verdict.Answer.Body)
			for node, errs := range refused.Nodes {
				for _, e := range errs.Errors {
					require.Contains(t, []string{"value_not_in_list", "custom_validation_failed"}, e.Type, "%s: node %s: %s", path, node, e.Details)
				}
			}
		}
	}
}
