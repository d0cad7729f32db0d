package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
		"telegram: {token: {env: BOT_TEST_WRONG}}" + rest:                                    "not a token of BotFather",
		telegram(", webhook: https://x.example/telegram/webhook"):                            "a webhook needs a secret",
		telegram(", webhook: https://x.example/hook, webhook_secret: {env: BOT_TEST_TOKEN}"): "must end in /telegram/webhook",
		telegram(", webhook: http://x.example/telegram/webhook"):                             "not an https address",
		telegram(", rate: -1"): "below zero",
		telegram("") + "limits: {pictures_per_day: 3, gpu_seconds_per_day: 3}":                              "cannot both be set",
		telegram("") + "limits: {waiting: -1}":                                                              "waiting: -1 is below zero",
		telegram("") + "limits: {admins: [telegram:ada]}":                                                   "an id of Telegram is a number",
		telegram("") + "limits: {admins: [slack:5]}":                                                        "the platforms are telegram, discord and webchat",
		telegram("") + "limits: {admins: [discord:ada]}":                                                    "an id of Discord is a long number",
		telegram("") + "limits: {filter_url: nowhere}":                                                      "filter_url",
		telegram("") + "help_url: \"javascript:alert(1)\"":                                                  "help_url: \"javascript:alert(1)\" is not an http or https address",
		telegram("") + "locales: nowhere":                                                                   "there is no folder",
		telegram("") + "default_edit_command: nope":                                                         `default_edit_command: there is no command "nope"`,
		telegram("") + "hub: nowhere":                                                                       "hub: this is not an address",
		"telegram: {token: {env: BOT_TEST_TOKEN}}\ncommands: {a: {workflow: x, max_steps: -2}}":             "max_steps: -2 is below zero",
		"telegram: {token: {env: BOT_TEST_TOKEN}}\ncommands: {a: {workflow: x, about: {ru: " + long + "}}}": "257 characters are too many for Telegram",
		"commands:\n  a: {workflow: x}\n  b: {workflow: x}\n  a: {workflow: y}":                             ":4: the command a is there already, in line 2",
		"commands:\n  a:\n    workflow: x\n    max_steps: many":                                             `:4: command a: "many" must be a whole number`,
		"commands:\n  a:\n    workflow: x\n    pryce: 3":                                                    `:4: command a: there is no option "pryce"`,
		"hub: http://x\nlimits:\n  wating: 3":                                                               `:3: there is no option "wating"`,
		"styles: [a]":                                                                                       ":1: styles is a map of names",
		"limits:\n  words: bad":                                                                             `:2: "bad" must be a list`,
	} {
		path := filepath.Join(t.TempDir(), "bot.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Load(path)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "unmarshal", text)
	}
	c, err := Parse([]byte("delivery: pigeon\nhub: nowhere\ncommands: {help: {workflow: x, price: -1}}"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(c.Problems()), 5, "all of them at once: %v", errors.Join(c.Problems()...))

	c, err = Parse([]byte("discord: {}\ncommands: {a: {workflow: x, about: {ru: " + long + "}}}"))
	require.NoError(t, err)
	require.NotContains(t, errors.Join(c.Problems()...).Error(), "Telegram", "it is not asked there")
}
