package config

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDiscordProblems(t *testing.T) {
	t.Setenv("BOT_TEST_DISCORD", "MTIzNDU2Nzg5MDEyMzQ1Njc4.GfAkEt.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	t.Setenv("BOT_TEST_WRONG", "123456:ABC-DEF")
	t.Setenv("COMFYHUB_DISCORD_TOKEN", "")
	const rest = "\ncommands: {a: {workflow: x}}\n"
	section := func(more string) string { return "discord: {token: {env: BOT_TEST_DISCORD}" + more + "}" + rest }
	for text, want := range map[string]string{
		"discord: {}" + rest:                                                  "token: the variable COMFYHUB_DISCORD_TOKEN is not set",
		"discord: {token: {env: BOT_TEST_WRONG}}" + rest:                      "not a token of a bot",
		section(", guilds: [\"5\"]"):                                          "guilds: \"5\" is not an id of Discord",
		section(", roles: [mods]"):                                            "roles: \"mods\" is not an id of Discord",
		section(", guilds: [\"123456789012345678\", \"123456789012345678\"]"): "there twice",
		section(", upload_mb: -1"):                                            "upload_mb: -1 is not between",
		section(", download_mb: 9999"):                                        "download_mb: 9999 is not between",
		section(", server: nowhere"):                                          "server: this is not an address",
		section("") + "limits: {allow_users: [discord:ada]}":                  "an id of Discord is a long number",
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
	c, err := Parse([]byte(section("")))
	require.NoError(t, err)
	c.defaults()
	require.Empty(t, c.Problems())
	require.True(t, c.Discord.AdmitsDirect())
	c.Discord.Guilds = []string{"123456789012345678"}
	require.False(t, c.Discord.AdmitsDirect(), "a stranger needs only one server in common with the bot")
}
