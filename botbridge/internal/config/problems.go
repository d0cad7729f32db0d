package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/comfyhub/comfyhub/botbridge/internal/conversation"
	"github.com/comfyhub/comfyhub/botbridge/internal/telegram"
)

var (
	secretToken = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)
	botToken    = regexp.MustCompile(`^[0-9]+:[A-Za-z0-9_-]+$`)
)

var errToken = errors.New("this is not a token from BotFather, which looks like 123456:ABC-DEF")

// Problems returns everything in the file with which no bridge can run, or could not
// do what the file says. Nothing is asked over the network.
func (c *Config) Problems() (list []error) {
	add := func(format string, args ...any) { list = append(list, fmt.Errorf(format, args...)) }
	if c.Delivery != "" && c.Delivery != "reply" && c.Delivery != "edit" {
		add("delivery: %q is neither reply nor edit", c.Delivery)
	}
	if !isAddress(c.Hub) {
		add("hub: this is not an address such as http://127.0.0.1:8188")
	}
	if c.FilesURL != "" && !isAddress(c.FilesURL) {
		add("files_url: %q is not an address such as https://files.example.com", c.FilesURL)
	}
	if c.HelpURL != "" && !isAddress(c.HelpURL) {
		add("help_url: %q is not an http or https address such as https://example.com/bot", c.HelpURL)
	}
	if folder := c.LocaleFolder(); folder != "" {
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			add("locales: there is no folder %s", folder)
		}
	}
	if c.Telegram == nil && c.Webchat == nil && c.Discord == nil {
		add("no chat platform is configured: telegram, discord or webchat")
	}
	list = append(list, c.telegramProblems()...)
	list = append(list, c.discordProblems()...)
	list = append(list, c.apiProblems()...)
	list = append(list, c.paymentProblems()...)
	if c.Results != nil {
		list = append(list, c.Results.Problems()...)
	}
	if c.Terms != nil {
		if _, _, err := c.Terms.Read(c.Folder); err != nil {
			list = append(list, err)
		}
	}
	if _, err := c.HubKey.Read(c.Folder); err != nil {
		add("hub_key: %w", err)
	}
	if c.Webchat != nil {
		if c.FilesURL == "" {
			add("webchat: it needs files_url, because pictures are sent as links")
		}
		if _, err := c.Webchat.Secret.Read(c.Folder); err != nil {
			add("webchat: secret: %w", err)
		}
	}
	for _, problem := range c.Limits.Problems() {
		add("limits: %w", problem)
	}
	return append(append(list, c.commandProblems()...), c.styleProblems()...)
}

// TelegramToken reads BotFather's token, and refuses what cannot be one.
func (c *Config) TelegramToken() (string, error) {
	token, err := c.Telegram.Token.Read(c.Folder)
	if err == nil && !botToken.MatchString(token) {
		err = errToken
	}
	return token, err
}

func (c *Config) telegramProblems() (list []error) {
	if c.Telegram == nil {
		return nil
	}
	add := func(format string, args ...any) { list = append(list, fmt.Errorf("telegram: "+format, args...)) }
	if _, err := c.TelegramToken(); err != nil {
		add("token: %w", err)
	}
	secret, err := c.Telegram.WebhookSecret.Read(c.Folder)
	if err != nil {
		add("webhook_secret: %w", err)
	}
	if c.Telegram.Webhook != "" {
		u, parseErr := url.Parse(c.Telegram.Webhook)
		// A Bot API server of one's own also calls http addresses.
		if parseErr != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || c.Telegram.Server == "") {
			add("webhook: this is not an https address such as https://bot.example.com%s", telegram.WebhookPath)
		} else if !strings.HasSuffix(u.Path, telegram.WebhookPath) {
			add("webhook: the address must end in %s", telegram.WebhookPath)
		} else if c.Telegram.Server == "" && !slices.Contains([]string{"", "443", "80", "88", "8443"}, u.Port()) {
			add("webhook: Telegram calls only the ports 443, 80, 88 and 8443, not %s", u.Port())
		}
		if err == nil && !secretToken.MatchString(secret) {
			add("webhook_secret: a webhook needs a secret of 1 to 256 letters, digits, _ and -; without one anybody could send updates")
		}
	}
	if c.Telegram.Server != "" && !isAddress(c.Telegram.Server) {
		add("server: this is not an address such as https://api.telegram.org")
	}
	if folder := c.Telegram.Local; folder != "" {
		info, err := os.Stat(folder)
		switch {
		case c.Telegram.Server == "":
			add("local: this is for a Bot API server of your own: name it under server")
		case err != nil || !info.IsDir() || !filepath.IsAbs(folder):
			add("local: %q is not the whole path of a folder", folder)
		}
	}
	if c.Telegram.Rate < 0 {
		add("rate: %v is negative", c.Telegram.Rate)
	}
	return list
}

func (c *Config) commandProblems() (list []error) {
	add := func(format string, args ...any) { list = append(list, fmt.Errorf(format, args...)) }
	if len(c.Commands) == 0 {
		add("commands: there are none")
	}
	own := len(conversation.Menu(c.Enhance != nil)) // commands of the bridge in the menu
	if len(c.Styles) > 0 {
		own++ // the one that lists them
	}
	if c.Sells() {
		own += len(conversation.SellingMenu())
	}
	if c.Telegram != nil && len(c.Commands) > telegram.MaxCommands-own {
		add("commands: there are %d; Telegram's menu holds %d", len(c.Commands), telegram.MaxCommands-own)
	}
	for _, command := range c.Commands {
		if slices.Contains(conversation.Reserved(c.Enhance != nil), command.Name) {
			add("command %s: the bridge has a command of that name itself", command.Name)
		} else if !isName(command.Name) {
			add("command %s: a name has only a-z, 0-9 and _, and at most 32 characters", command.Name)
		}
		for _, language := range slices.Sorted(maps.Keys(command.About)) {
			if n := utf8.RuneCountInString(command.About[language]); c.Telegram != nil && n > telegram.MaxAbout {
				add("command %s: about: %s: it has %d characters; Telegram takes at most %d", command.Name, language, n, telegram.MaxAbout)
			}
		}
		price := int64(0)
		if command.Price != nil {
			price = *command.Price
		}
		for _, limit := range []struct {
			name  string
			value int64
		}{
			{"price", price}, {"max_count", int64(command.MaxCount)}, {"max_steps", int64(command.MaxSteps)}, {"max_pixels", int64(command.MaxPixels)},
		} {
			if limit.value < 0 {
				add("command %s: %s: %d is negative", command.Name, limit.name, limit.value)
			}
		}
	}
	if c.DefaultCommand != "" && !slices.ContainsFunc(c.Commands, func(k Command) bool { return k.Name == c.DefaultCommand }) {
		add("default_command: there is no command %q", c.DefaultCommand)
	}
	if c.DefaultEditCommand != "" && !slices.ContainsFunc(c.Commands, func(k Command) bool { return k.Name == c.DefaultEditCommand }) {
		add("default_edit_command: there is no command %q", c.DefaultEditCommand)
	}
	return list
}

func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}

// known returns an error for a word in a node that a struct has no field for.
func known(node *yaml.Node, into any) error {
	if node.Kind != yaml.MappingNode {
		return nil
	}
	words := optionsOf(into)
	for i := 0; i+1 < len(node.Content); i += 2 {
		if key := node.Content[i]; !slices.Contains(words, key.Value) {
			return fmt.Errorf("line %d: %s", key.Line, noOption(key.Value, words))
		}
	}
	return nil
}

var (
	unknownField = regexp.MustCompile(`^line (\d+): field (.*) not found in type (.*)$`)
	wrongType    = regexp.MustCompile("^line (\\d+): cannot unmarshal !!(\\w+)(?: `(.*)`)? into (.*)$")
)

// plain says what is wrong with a YAML file in words of its author, not of the program.
func plain(err error) error {
	var types *yaml.TypeError
	if !errors.As(err, &types) {
		return syntax(err)
	}
	lines := make([]error, 0, len(types.Errors))
	for _, text := range types.Errors {
		if m := unknownField.FindStringSubmatch(text); m != nil {
			var possible []string
			if m[3] == "config.Config" {
				possible = optionsOf(Config{})
			}
			text = fmt.Sprintf("line %s: %s", m[1], noOption(m[2], possible))
		} else if m := wrongType.FindStringSubmatch(text); m != nil {
			text = fmt.Sprintf("line %s: this must be %s", m[1], kind(m[4]))
			if m[3] != "" {
				text = fmt.Sprintf("line %s: %q must be %s", m[1], m[3], kind(m[4]))
			}
		}
		lines = append(lines, errors.New(text))
	}
	return errors.Join(lines...)
}

// kind names a type of Go for people.
func kind(of string) string {
	switch {
	case of == "time.Duration":
		return "a time such as 20s"
	case strings.HasPrefix(of, "int"), strings.HasPrefix(of, "uint"):
		return "a whole number"
	case strings.HasPrefix(of, "float"):
		return "a number"
	case of == "bool":
		return "true or false"
	case of == "string":
		return "text"
	case strings.HasPrefix(of, "[]"):
		return "a list"
	}
	return "a block of options"
}
