package docker_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

// The newest version of the changelog is the one that everything names, and what comes after it has a
// section to go to.
func TestVersion(t *testing.T) {
	t.Parallel()
	changes := string(must.Get(os.ReadFile("../CHANGELOG.md"))(t))
	sections := regexp.MustCompile(`(?m)^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$`).FindAllStringSubmatch(changes, -1)
	require.Greater(t, len(sections), 1)
	require.Equal(t, []string{"Unreleased", ""}, sections[0][1:])
	for _, section := range sections[1:] {
		require.Regexp(t, `^\d+\.\d+\.\d+$`, section[1])
		require.NotEmpty(t, section[2], section[0])
	}
	version := sections[1][1]
	chart := string(must.Get(os.ReadFile("helm/Chart.yaml"))(t))
	require.Contains(t, chart, "\nversion: "+version+"\n")
	require.Contains(t, chart, "\nappVersion: \""+version+"\"\n")
	require.Contains(t, string(must.Get(os.ReadFile("../README.md"))(t)), "badge/version-"+version+"-")
	files := append(must.Get(filepath.Glob("../docs/*.md"))(t), must.Get(filepath.Glob("terraform/*"))(t)...)
	named := 0
	for _, file := range append(files, "../README.md", "install.sh") {
		for _, found := range regexp.MustCompile(`(?:download/|ref=)v\d+\.\d+\.\d+`).FindAllString(string(must.Get(os.ReadFile(file))(t)), -1) {
			require.True(t, strings.HasSuffix(found, "v"+version), "%s in %s", found, file)
			named++
		}
	}
	require.GreaterOrEqual(t, named, 3)
}
