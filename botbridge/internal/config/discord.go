package config

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/comfyhub/comfyhub/botbridge/internal/conversation"
	"github.com/comfyhub/comfyhub/botbridge/internal/discord"
)

// maxUploadMB is what no server of Discord takes.
const maxUploadMB = 500

var (
	// A token of Discord is the bot's id, a time and a signature, each in base64.
	discordToken = regexp.MustCompile(`^[A-Za-z0-9_-]{18,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{20,}$`)
	snowflake    = regexp.MustCompile(`^[1-9][0-9]{15,19}$`)
)

func (c *Config) discordProblems() (list []error) {
	if c.Discord == nil {
		return nil
	}
	add := func(format string, args ...any) { list = append(list, fmt.Errorf("discord: "+format, args...)) }
	token, err := c.Discord.Token.Read(c.Folder)
	switch {
	case err != nil:
		add("token: %w", err)
	case !discordToken.MatchString(token):
		add("token: this is not a bot token, which has three parts separated by dots; the developer portal shows it once, on the page Bot")
	}
	if c.Discord.Server != "" && !isAddress(c.Discord.Server) {
		add("server: this is not an address such as https://discord.com/api/v10")
	}
	for _, named := range []struct {
		word string
		ids  []string
	}{{"guilds", c.Discord.Guilds}, {"roles", c.Discord.Roles}} {
		for i, id := range named.ids {
			if !snowflake.MatchString(id) {
				add("%s: %q is not a Discord id, which is a long number in quotes; in developer mode, *Copy ID* gives it", named.word, id)
			} else if slices.Contains(named.ids[:i], id) {
				add("%s: %s is listed twice", named.word, id)
			}
		}
	}
	for _, limit := range []struct {
		word  string
		value int64
	}{{"upload_mb", c.Discord.UploadMB}, {"download_mb", c.Discord.DownloadMB}} {
		if limit.value < 0 || limit.value > maxUploadMB {
			add("%s: %d is not between 0 and %d", limit.word, limit.value, maxUploadMB)
		}
	}
	own := len(conversation.Menu(c.Enhance != nil)) // commands of the bridge
	if len(c.Commands) > discord.MaxCommands-own {
		add("there are %d commands; Discord takes %d", len(c.Commands), discord.MaxCommands-own)
	}
	return list
}
