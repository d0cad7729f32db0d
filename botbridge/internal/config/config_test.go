package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExampleIsValid(t *testing.T) {
	t.Parallel()
	c, err := Read(filepath.Join("..", "..", "..", "examples", "bot", "bot.yaml"))
	require.NoError(t, err)
	commands, err := c.Bind()
	require.NoError(t, err)
	var names []string
	for _, command := range commands {
		names = append(names, command.Name)
	}
	require.Equal(t, []string{"generate", "edit", "inpaint", "upscale", "poster", "clip"}, names, "in the order of the file")
	require.EqualValues(t, 0, commands[4].Price)
	require.EqualValues(t, 4, commands[5].Price)
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                      "the file is empty",
		"telegram: {token: 123:abc}":            ":1: a secret is {env: VARIABLE} or {file: PATH}, never",
		"telegram: {token: {fiel: x}}":          "fiel",
		"hubb: x":                               "hubb",
		"commands: []":                          "commands is a map",
		"commands: {a: {workfloww: x}}":         "workfloww",
		"commands: {help: {workflow: x}}":       "command help: this is a command of the bridge itself",
		"commands: {Big-Name: {workflow: x}}":   "names are a-z",
		"hub: http://x":                         "commands: there are none",
		"default_command: b\ncommands: {a: {}}": `there is no command "b"`,
		"delivery: pigeon\ncommands: {a: {}}":   "neither reply nor edit",
		"webchat: {}\ncommands: {a: {}}":        "webchat: it needs files_url",
		"enhance: {}\ncommands: {a: {}}":        "enhance: model: no model",
		"enhance: {url: \"http://u:p@x/v1\", model: m}\ncommands: {a: {}}":               "a key belongs to key",
		"enhance: {url: \"http://x/v1/chat/completions/\", model: m}\ncommands: {a: {}}": "leave out /chat/completions",
		"enhance: {url: \"http://x\", model: m, key: abc}\ncommands: {a: {}}":            ":1: a secret is",
		"enhance: {url: \"http://x\", model: m, timeout: 1h}\ncommands: {a: {}}":         "is not between 0s and 2m0s",
		"enhance: {url: \"http://x\", model: m, timeout: soon}\ncommands: {a: {}}":       "a time such as 20s",
		"enhance: {url: \"http://x\", model: m, max_tokens: -1}\ncommands: {a: {}}":      "max_tokens: -1 is not between",
		"enhance: {url: \"http://x\"}\ncommands: {enhance: {workflow: x}}":               "command enhance: this is a command of the bridge itself",
		"terms: {}\ncommands: {a: {}}":                                                   "terms: there is no text for en",
		"terms: {en: \"\"}\ncommands: {a: {}}":                                           "terms: en: the text has 0 bytes",
		"terms: {en: {fiel: x}}\ncommands: {a: {}}":                                      ":1: en: terms are a text, or {file: PATH}",
		"terms: {en: {file: gone}}\ncommands: {a: {}}":                                   "terms: en: open",
		"terms: {klingon speak: x}\ncommands: {a: {}}":                                   "this is no language",
		"terms: hello\ncommands: {a: {}}":                                                "terms is a map of languages",
		"results: {fail: maybe}\ncommands: {a: {}}":                                      "neither open nor closed",
		"results: {hook: nowhere}\ncommands: {a: {}}":                                    "results: hook: this is not an http",
		"files_url: nowhere\ncommands: {a: {}}":                                          "is not an address",
	} {
		path := filepath.Join(t.TempDir(), "bot.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Load(path)
		require.ErrorContains(t, err, want, text)
	}
}

func TestSecrets(t *testing.T) {
	t.Setenv("BOT_TEST_SECRET", "from the environment")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte(" from a file\n"), 0o600))
	for want, s := range map[string]Secret{
		"": {}, "from the environment": {Env: "BOT_TEST_SECRET"}, "from a file": {File: "secret"},
	} {
		got, err := s.Read(dir)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, s := range []Secret{{Env: "BOT_TEST_NOT_SET"}, {File: "nothing"}, {Env: "BOT_TEST_SECRET", File: "secret"}} {
		_, err := s.Read(dir)
		require.Error(t, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("commands: {a: {workflow: x, inputs: {seed: y}}}\nlimits: {waiting: 3}"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = Parse(data) })
}

// Terms have the version that bot.yaml says, or change it with their texts.
func TestTerms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ru.txt"), []byte("Будьте людьми.\n"), 0o600))
	read := func(text string) (map[string]string, string) {
		c, err := Parse([]byte(text))
		require.NoError(t, err)
		texts, version, err := c.Terms.Read(dir)
		require.NoError(t, err)
		return texts, version
	}
	texts, first := read("terms: {en: Be kind., ru: {file: ru.txt}}")
	require.Equal(t, map[string]string{"en": "Be kind.", "ru": "Будьте людьми."}, texts)
	_, second := read("terms: {en: Be very kind., ru: {file: ru.txt}}")
	require.NotEqual(t, first, second)
	_, said := read("terms: {version: 3, en: Be kind.}")
	require.Equal(t, "3", said)
}

// What lets the bridge name tenants is what the file says, else what the environment says.
func TestHubKey(t *testing.T) {
	dir := t.TempDir()
	read := func(text string) (string, error) {
		path := filepath.Join(dir, "bot.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		c, err := Read(path)
		require.NoError(t, err)
		return c.HubKey.Read(c.Folder)
	}
	for _, step := range []struct{ variable, value, text, want string }{
		{"", "", "hub: http://hub:8188", ""},
		{"COMFYHUB_BOT_HUB_KEY_FILE", filepath.Join(dir, "key"), "hub: http://hub:8188", "of a file"},
		{"COMFYHUB_BOT_HUB_KEY", "of a variable", "hub: http://hub:8188", "of a variable"},
		{"OWN", "of the operator", "hub_key: {env: OWN}", "of the operator"},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "key"), []byte("of a file\n"), 0o600))
		if step.variable != "" {
			t.Setenv(step.variable, step.value)
		}
		got, err := read(step.text)
		require.NoError(t, err)
		require.Equal(t, step.want, got)
	}
	_, err := read("hub_key: {file: nothing}")
	require.Error(t, err)
}
