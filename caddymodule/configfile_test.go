package caddymodule

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program finds its Caddyfile wherever it runs, as packages and archives lay it out.
func TestFindCaddyfile(t *testing.T) {
	beside, etc, empty := t.TempDir(), t.TempDir(), t.TempDir()
	for _, folder := range []string{beside, etc} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "Caddyfile"), nil, 0o600))
	}
	t.Chdir(empty)
	for name, c := range map[string]struct {
		args    []string
		folders []string
		want    string
	}{
		"beside the program":   {[]string{"run"}, []string{beside, etc}, beside},
		"of the package":       {[]string{"run", "--watch"}, []string{empty, etc}, etc},
		"none":                 {[]string{"run"}, []string{empty}, ""},
		"named":                {[]string{"run", "--config", "a"}, []string{etc}, ""},
		"named, with =":        {[]string{"run", "--config=a"}, []string{etc}, ""},
		"named, short":         {[]string{"run", "-wc", "a"}, []string{etc}, ""},
		"that of the last run": {[]string{"run", "--resume"}, []string{etc}, ""},
		"help":                 {[]string{"run", "--help"}, []string{etc}, ""},
		"not its command":      {[]string{"fmt"}, []string{etc}, ""},
		"a running hub":        {[]string{"reload"}, []string{etc}, ""},
		"nothing":              {nil, []string{etc}, ""},
	} {
		args, found := FindCaddyfile(c.args, c.folders...)
		if c.want == "" {
			require.Equal(t, c.args, args, name)
			require.Empty(t, found, name)
			continue
		}
		file := filepath.Join(c.want, "Caddyfile")
		require.Equal(t, append(c.args, "--config", file), args, name)
		require.Equal(t, file, found, name)
	}
	t.Chdir(etc)
	args, found := FindCaddyfile([]string{"run"}, beside)
	require.Equal(t, []string{"run"}, args, "Caddy reads that of its own folder")
	require.Equal(t, "Caddyfile", found)
}
