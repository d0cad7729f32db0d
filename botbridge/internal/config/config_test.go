package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestExampleIsValid(t *testing.T) {
	t.Parallel()
	c := must.Get(Read(filepath.Join("..", "..", "..", "examples", "bot", "bot.yaml")))(t)
	commands := must.Get(c.Bind())(t)
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
		"commands: []":                          "commands must be a map",
		"commands: {a: {workfloww: x}}":         "workfloww",
		"commands: {help: {workflow: x}}":       "command help: the bridge has a command of that name itself",
		"commands: {Big-Name: {workflow: x}}":   "a name has only a-z",
		"hub: http://x":                         "commands: there are none",
		"default_command: b\ncommands: {a: {}}": `there is no command "b"`,
		"delivery: pigeon\ncommands: {a: {}}":   "neither reply nor edit",
		"webchat: {}\ncommands: {a: {}}":        "webchat: it needs files_url",
		"enhance: {}\ncommands: {a: {}}":        "enhance: model: no model",
		"enhance: {url: \"http://u:p@x/v1\", model: m}\ncommands: {a: {}}":               "put a key under key",
		"enhance: {url: \"http://x/v1/chat/completions/\", model: m}\ncommands: {a: {}}": "leave out /chat/completions",
		"enhance: {url: \"http://x\", model: m, key: abc}\ncommands: {a: {}}":            ":1: a secret is",
		"enhance: {url: \"http://x\", model: m, timeout: 1h}\ncommands: {a: {}}":         "is not between 0s and 2m0s",
		"enhance: {url: \"http://x\", model: m, timeout: soon}\ncommands: {a: {}}":       "a time such as 20s",
		"enhance: {url: \"http://x\", model: m, max_tokens: -1}\ncommands: {a: {}}":      "max_tokens: -1 is not between",
		"enhance: {url: \"http://x\"}\ncommands: {enhance: {workflow: x}}":               "command enhance: the bridge has a command of that name itself",
		"terms: {}\ncommands: {a: {}}":                                                   "terms: en is missing",
		"terms: {en: \"\"}\ncommands: {a: {}}":                                           "terms: en: the text has 0 bytes",
		"terms: {en: {fiel: x}}\ncommands: {a: {}}":                                      ":1: en: terms must be a text or {file: PATH}",
		"terms: {en: {file: gone}}\ncommands: {a: {}}":                                   "terms: en: open",
		"terms: {klingon speak: x}\ncommands: {a: {}}":                                   "this is not a language",
		"terms: hello\ncommands: {a: {}}":                                                "terms must be a map of languages",
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
		require.Equal(t, want, must.Get(s.Read(dir))(t))
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
		c := must.Get(Parse([]byte(text)))(t)
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
		c := must.Get(Read(path))(t)
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
		require.Equal(t, step.want, must.Get(read(step.text))(t))
	}
	_, err := read("hub_key: {file: nothing}")
	require.Error(t, err)
}

func TestDiscordProblems(t *testing.T) {
	t.Setenv("BOT_TEST_DISCORD", "MTIzNDU2Nzg5MDEyMzQ1Njc4.GfAkEt.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	t.Setenv("BOT_TEST_WRONG", "123456:ABC-DEF")
	t.Setenv("COMFYHUB_DISCORD_TOKEN", "")
	const rest = "\ncommands: {a: {workflow: x}}\n"
	section := func(more string) string { return "discord: {token: {env: BOT_TEST_DISCORD}" + more + "}" + rest }
	for text, want := range map[string]string{
		"discord: {}" + rest:                                                  "token: the variable COMFYHUB_DISCORD_TOKEN is not set",
		"discord: {token: {env: BOT_TEST_WRONG}}" + rest:                      "not a bot token",
		section(", guilds: [\"5\"]"):                                          "guilds: \"5\" is not a Discord id",
		section(", roles: [mods]"):                                            "roles: \"mods\" is not a Discord id",
		section(", guilds: [\"123456789012345678\", \"123456789012345678\"]"): "listed twice",
		section(", upload_mb: -1"):                                            "upload_mb: -1 is not between",
		section(", download_mb: 9999"):                                        "download_mb: 9999 is not between",
		section(", server: nowhere"):                                          "server: this is not an address",
		section("") + "limits: {allow_users: [discord:ada]}":                  "a Discord id is a long number",
		section(", guild: x"):                                                 "guild",
	} {
		c, err := Parse([]byte(text))
		if err == nil {
			c.defaults()
			err = errors.Join(c.Problems()...)
		}
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "ABC-DEF", "no secret is quoted")
	}
	c := must.Get(Parse([]byte(section(""))))(t)
	c.defaults()
	require.Empty(t, c.Problems())
	require.True(t, c.Discord.AdmitsDirect())
	c.Discord.Guilds = []string{"123456789012345678"}
	require.False(t, c.Discord.AdmitsDirect(), "a stranger needs only one server in common with the bot")
}

// Prices need somebody who helps with payments, and terms; and whoever is named as that has
// something to sell.
func TestPaymentProblems(t *testing.T) {
	t.Setenv("BOT_TEST_TOKEN", "123456:ABC-DEF")
	const telegram, terms, contact = "telegram: {token: {env: BOT_TEST_TOKEN}}\n", "terms: {en: x}\n", "payments: {contact: '@help'}\n"
	for text, want := range map[string]string{
		telegram + contact + "commands: {a: {workflow: x}}":                              "payments: no command has a price in stars",
		telegram + terms + "commands: {a: {workflow: x, stars: 3}}":                      "payments: contact: name somebody people can write to",
		telegram + contact + "commands: {a: {workflow: x, stars: 3}}":                    "terms: missing",
		telegram + terms + contact + "commands: {a: {workflow: x, stars: -3}}":           "command a: stars: -3 is negative",
		telegram + terms + contact + "commands: {paysupport: {workflow: x, stars: 3}}":   "command paysupport: once anything costs stars",
		telegram + terms + contact + "commands: {a: {workflow: x, stars: 3, price: 99}}": "",
		telegram + "commands: {refund: {workflow: x}}":                                   "",
	} {
		c := must.Get(Parse([]byte("hub: http://x\n" + text)))(t)
		got := errors.Join(c.Problems()...)
		if want == "" {
			require.NoError(t, got, text)
			continue
		}
		require.ErrorContains(t, got, want, text)
	}
	_, err := Parse([]byte("commands:\n  a:\n    workflow: x\n    stars: few"))
	require.ErrorContains(t, err, `line 4: "few" must be a whole number`)
}

// What is wrong is found by check and refused by run, all of it at once, in words for
// people, at the right line.
func TestProblems(t *testing.T) {
	t.Setenv("BOT_TEST_TOKEN", "123456:ABC-DEF")
	t.Setenv("BOT_TEST_WRONG", "no token")
	t.Setenv("COMFYHUB_BOT_TOKEN", "")
	const rest = "\ncommands: {a: {workflow: x}}\n"
	telegram := func(more string) string { return "telegram: {token: {env: BOT_TEST_TOKEN}" + more + "}" + rest }
	long := strings.Repeat("ы", 257)
	for text, want := range map[string]string{
		rest:                  "no chat platform is configured",
		"telegram: {}" + rest: "token: the variable COMFYHUB_BOT_TOKEN is not set",
		"telegram: {token: {env: BOT_TEST_WRONG}}" + rest:                                    "not a token from BotFather",
		telegram(", webhook: https://x.example/telegram/webhook"):                            "a webhook needs a secret",
		telegram(", webhook: https://x.example/hook, webhook_secret: {env: BOT_TEST_TOKEN}"): "must end in /telegram/webhook",
		telegram(", webhook: http://x.example/telegram/webhook"):                             "not an https address",
		telegram(", rate: -1"): "is negative",
		telegram(", local: ."): "local: this is for a Bot API server of your own",
		telegram(", server: http://127.0.0.1:8081, local: nowhere"):                                         "local: \"nowhere\" is not the whole path of a folder",
		telegram("") + "limits: {pictures_per_day: 3, gpu_seconds_per_day: 3}":                              "cannot both be set",
		telegram("") + "limits: {waiting: -1}":                                                              "waiting: -1 is negative",
		telegram("") + "limits: {admins: [telegram:ada]}":                                                   "a Telegram id is a number",
		telegram("") + "limits: {admins: [slack:5]}":                                                        "the platforms are telegram, discord and webchat",
		telegram("") + "limits: {admins: [discord:ada]}":                                                    "a Discord id is a long number",
		telegram("") + "limits: {filter_url: nowhere}":                                                      "filter_url",
		telegram("") + "help_url: \"javascript:alert(1)\"":                                                  "help_url: \"javascript:alert(1)\" is not an http or https address",
		telegram("") + "locales: nowhere":                                                                   "there is no folder",
		telegram("") + "default_edit_command: nope":                                                         `default_edit_command: there is no command "nope"`,
		telegram("") + "hub: nowhere":                                                                       "hub: this is not an address",
		"telegram: {token: {env: BOT_TEST_TOKEN}}\ncommands: {a: {workflow: x, max_steps: -2}}":             "max_steps: -2 is negative",
		"telegram: {token: {env: BOT_TEST_TOKEN}}\ncommands: {a: {workflow: x, about: {ru: " + long + "}}}": "it has 257 characters; Telegram takes at most",
		"commands:\n  a: {workflow: x}\n  b: {workflow: x}\n  a: {workflow: y}":                             ":4: there is already a command a, on line 2",
		"commands:\n  a:\n    workflow: x\n    max_steps: many":                                             `:4: command a: "many" must be a whole number`,
		"commands:\n  a:\n    workflow: x\n    pryce: 3":                                                    `:4: command a: there is no option "pryce"`,
		"hub: http://x\nlimits:\n  wating: 3":                                                               `:3: there is no option "wating"`,
		"styles: [a]":                                                                                       ":1: styles must be a map of names",
		"limits:\n  words: bad":                                                                             `:2: "bad" must be a list`,
	} {
		path := filepath.Join(t.TempDir(), "bot.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Load(path)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "unmarshal", text)
	}
	c := must.Get(Parse([]byte("delivery: pigeon\nhub: nowhere\ncommands: {help: {workflow: x, price: -1}}")))(t)
	require.GreaterOrEqual(t, len(c.Problems()), 5, "all of them at once: %v", errors.Join(c.Problems()...))

	c = must.Get(Parse([]byte("discord: {}\ncommands: {a: {workflow: x, about: {ru: " + long + "}}}")))(t)
	require.NotContains(t, errors.Join(c.Problems()...).Error(), "Telegram", "it is not asked there")
}

func TestStyleProblems(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "x.json"), []byte(`{"1": {"class_type": "Text", "inputs": {"text": "x", "cfg": 7}, "_meta": {"title": "prompt"}}}`), 0o600))
	for text, want := range map[string]string{
		"  film: {prompt: film}":                                         "3: style film: prompt: it needs {prompt} once",
		"  film: {}":                                                     "3: style film: it changes nothing",
		"  Film: {negative: x}":                                          "3: style Film: a name has only a-z",
		"  film: {negative: x, commands: [b]}":                           `3: style film: commands: there is no command "b"`,
		"  film: {negative: x}\n  film: {negative: y}":                   ":4: there is already a style film, on line 3",
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
	c := must.Get(Parse([]byte("commands: {a: {workflow: x.json}}\nstyles:\n  film: {about: {en: a}, prompt: '{prompt}, 35mm', arguments: {cfg: 4.5}}\n  ink: {negative: colour}")))(t)
	c.Folder = folder
	commands := must.Get(c.Bind())(t)
	require.Len(t, commands[0].Styles(), 2)
	require.Equal(t, "film", commands[0].Styles()[0].Name)
}
