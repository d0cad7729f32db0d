package caddymodule

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var caddyfileBlock = regexp.MustCompile("(?ms)^```caddyfile\n(.*?)^```$")

// TestExamples adapts each Caddyfile that the docs show.
func TestExamples(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	examples := 0
	for _, page := range append(pages, "../README.md", "../SECURITY.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
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
