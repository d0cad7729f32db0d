package page

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the page translates is what the hub says: a text that changes there must change here.
func TestReasonsAreThoseOfTheHub(t *testing.T) {
	t.Parallel()
	script, err := static.ReadFile("static/reasons.js")
	require.NoError(t, err)
	var said strings.Builder
	for _, folder := range []string{"dispatch", "instance", "schedule", "view", "fleet", "hints", "overflow", "scale"} {
		files, err := filepath.Glob("../../" + folder + "/*.go")
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			said.Write(text)
		}
	}
	pairs := regexp.MustCompile(`(?m)^    \[(?:'([^']+)'|"([^"]+)"), '([^']+)'\],$`).FindAllStringSubmatch(string(script), -1)
	require.Greater(t, len(pairs), 40)
	for _, pair := range pairs {
		english := pair[1] + pair[2]
		for part := range strings.SplitSeq(english, "{x}") {
			part = strings.TrimPrefix(strings.Trim(part, ": "), "it ")
			if len(part) > 3 {
				require.Contains(t, said.String(), part, english)
			}
		}
		require.Equal(t, strings.Count(english, "{x}"), strings.Count(pair[3], "{x}"), english)
	}
}
