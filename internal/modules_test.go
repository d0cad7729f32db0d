package internal_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var requirement = regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`)

// The workspace builds everything with the newest version that any of its modules names. Where
// all name the same, what is tested here is what each go.mod pins: the hub as xcaddy builds it,
// the images, and a bot bridge that somebody builds by itself.
func TestModulesAgree(t *testing.T) {
	t.Parallel()
	versions := func(folder string) map[string]string {
		text, err := os.ReadFile(filepath.Join("..", folder, "go.mod"))
		require.NoError(t, err)
		all := map[string]string{}
		for _, found := range requirement.FindAllStringSubmatch(string(text), -1) {
			all[found[1]] = found[2]
		}
		return all
	}
	hub := versions(".")
	require.Greater(t, len(hub), 30, "the versions are found")
	for _, folder := range []string{"botbridge", "botbridge/world"} {
		both := 0
		for module, version := range versions(folder) {
			if hub[module] != "" {
				both++
				require.Equal(t, hub[module], version, "%s: %s", folder, module)
			}
		}
		require.Greater(t, both, 15, folder)
	}
}
