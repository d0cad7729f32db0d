package caddymodule

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// word finds the words of the syntax in a comment of UnmarshalCaddyfile.
var word = regexp.MustCompile(`(?m)^//\t +([a-z_0-9]+)(?: |$)`)

// TestReference holds docs/caddyfile.md against the syntax that the parsers document: the
// page has each word, and no other.
func TestReference(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/caddyfile.md")
	require.NoError(t, err)
	_, tables, ok := strings.Cut(string(page), "\n## Words\n")
	require.True(t, ok)
	described := map[string]bool{}
	for line := range strings.Lines(tables) {
		cell, isRow := strings.CutPrefix(line, "| `")
		if !isRow {
			continue
		}
		cell, _, _ = strings.Cut(cell, " | ") // an escaped bar has no space before it
		for _, w := range regexp.MustCompile(`[a-z][a-z_0-9]+`).FindAllString(cell, -1) {
			described[w] = true
		}
	}
	syntax := map[string]bool{}
	for _, file := range []string{"caddyfile.go", "handler.go"} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range word.FindAllStringSubmatch(string(source), -1) {
			syntax[found[1]] = true
			require.Contains(t, described, found[1], "docs/caddyfile.md has a row for each word of %s", file)
		}
	}
	require.Greater(t, len(syntax), 40, "the words are found")
	for line := range strings.Lines(tables) {
		if row := regexp.MustCompile("^\\| `([a-z_0-9]+)").FindStringSubmatch(line); row != nil {
			require.Contains(t, syntax, row[1], "the parsers know each word of docs/caddyfile.md")
		}
	}
}
