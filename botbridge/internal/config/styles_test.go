package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStyleProblems(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "x.json"), []byte(`{"1": {"class_type": "Text", "inputs": {"text": "x", "cfg": 7}, "_meta": {"title": "prompt"}}}`), 0o600))
	for text, want := range map[string]string{
		"  film: {prompt: film}":                                         "3: style film: prompt: it needs {prompt} once",
		"  film: {}":                                                     "3: style film: it changes nothing",
		"  Film: {negative: x}":                                          "3: style Film: names are a-z",
		"  film: {negative: x, commands: [b]}":                           `3: style film: commands: there is no command "b"`,
		"  film: {negative: x}\n  film: {negative: y}":                   ":4: the style film is there already, in line 3",
		"  film: {promt: x}":                                             `:3: style film: there is no option "promt"`,
		"  film: {arguments: {steps: 4}}":                                "3: style film does not fit. /a: it takes no --steps 4",
		"  film: {prompt: '{prompt}, x', arguments: {guidance: 4}}":      "/a: it takes no --guidance",
		"  film: {negative: x, commands: [a], arguments: {nothing: on}}": "/a: it takes no --nothing",
	} {
		path := filepath.Join(folder, "bot.yaml")
		require.NoError(t, os.WriteFile(path, []byte("commands: {a: {workflow: x.json}}\nstyles:\n"+text), 0o600))
		c, err := Read(path)
		if err == nil {
			_, bind := c.Bind()
			err = errors.Join(append(c.Problems(), bind)...)
		}
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "unmarshal", text)
	}
	c, err := Parse([]byte("commands: {a: {workflow: x.json}}\nstyles:\n  film: {about: {en: a}, prompt: '{prompt}, 35mm', arguments: {cfg: 4.5}}\n  ink: {negative: colour}"))
	require.NoError(t, err)
	c.Folder = folder
	commands, err := c.Bind()
	require.NoError(t, err)
	require.Len(t, commands[0].Styles(), 2)
	require.Equal(t, "film", commands[0].Styles()[0].Name)
}
