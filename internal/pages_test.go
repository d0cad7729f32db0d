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

// Each test that a page names as the holder of a promise exists.
func TestPages(t *testing.T) {
	t.Parallel()
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
	names := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`")
	for page, atLeast := range map[string]int{"security": 50, "reliability": 40, "testing": 5, "scheduling": 10} {
		text, err := os.ReadFile(filepath.Join("..", "docs", page+".md"))
		require.NoError(t, err)
		named := names.FindAllSubmatch(text, -1)
		require.GreaterOrEqual(t, len(named), atLeast, page)
		for _, match := range named {
			require.True(t, known[string(match[1])], "%s names %s, which is not there", page, match[1])
		}
	}
}
