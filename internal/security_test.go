package internal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each test that the page on security names as the holder of a promise exists.
func TestSecurityPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/security.md")
	require.NoError(t, err)
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	known := map[string]bool{}
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range declared.FindAllSubmatch(source, -1) {
			known[string(match[1])] = true
		}
		return err
	}))
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`").FindAllSubmatch(page, -1)
	require.Greater(t, len(named), 50)
	for _, match := range named {
		require.True(t, known[string(match[1])], "%s is named and not there", match[1])
	}
}
