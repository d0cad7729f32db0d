// Package config reads bot.yaml: where everything is, who may do what, and the
// commands with their workflows. Secrets come from the environment or from files,
// never from bot.yaml itself.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// Config is bot.yaml.
type Config struct {
	// Hub is the hub's URL. Default: http://127.0.0.1:8188.
	Hub string `yaml:"hub"`
	// HubKey lets the bridge in and name the tenant of each request: an API key of the hub's
	// with the scope act_for_tenants, or the site's tenant_secret. Default: the variable
	// COMFYHUB_BOT_HUB_KEY or the file of COMFYHUB_BOT_HUB_KEY_FILE, if there is one.
	HubKey Secret `yaml:"hub_key"`
	// Redis is where the bridge keeps its state, in the same form as the hub's:
	// "embedded", or a URL. Default: embedded.
	Redis string `yaml:"redis"`
	// Prefix begins every key in Redis. Default: botbridge.
	Prefix string `yaml:"prefix"`
	// Data is the folder of the embedded Redis. Default: ./data/botbridge.
	Data string `yaml:"data"`
	// Listen is the address for health, metrics, webhook and webchat.
	// Default: 127.0.0.1:8190.
	Listen string `yaml:"listen"`
	// FilesURL is how users reach the hub's /hub/files/: links to files that are
	// too large for a chat begin with it. If empty, there are no such links.
	FilesURL string `yaml:"files_url"`
	// HelpURL is a page about the bot, to which /help links. Empty: there is none.
	HelpURL string `yaml:"help_url"`
	// Locales is a folder of languages in addition to the built-in ones.
	Locales  string    `yaml:"locales"`
	Telegram *Telegram `yaml:"telegram"`
	Webchat  *Webchat  `yaml:"webchat"`
	Discord  *Discord  `yaml:"discord"`
	// Enhance finds better words for prompts; nil: nobody is asked.
	Enhance *Enhance `yaml:"enhance"`
	// Transcribe writes down voice messages; nil: nobody does.
	Transcribe *Transcribe `yaml:"transcribe"`
	// Terms are accepted before the first request; nil: there are none.
	Terms *Terms `yaml:"terms"`
	// Payments says who helps with payments; nil: nothing is for sale.
	Payments *Payments `yaml:"payments"`
	// Results looks at what was made before it is shown; nil: nobody does.
	Results *limits.Results `yaml:"results"`
	// Limits says who may do what.
	Limits limits.Config `yaml:"limits"`
	// Delivery is how a single picture is sent: "reply", as a new message, or
	// "edit", in place of the status message. Default: reply.
	Delivery string `yaml:"delivery"`
	// DefaultCommand is used for text without a command in a private chat.
	DefaultCommand string `yaml:"default_command"`
	// DefaultEditCommand is used for a picture with words but without a command.
	// Default: DefaultCommand, if it takes a picture and words, else the first command
	// that does.
	DefaultEditCommand string   `yaml:"default_edit_command"`
	Commands           Commands `yaml:"commands"`
	// Styles are what --style may name.
	Styles Styles `yaml:"styles"`

	// Folder is where the file is: paths in it are relative to it.
	Folder string `yaml:"-"`

	place place
}

// Telegram is the section of that name.
type Telegram struct {
	// Token is BotFather's. Default: the variable COMFYHUB_BOT_TOKEN.
	Token Secret `yaml:"token"`
	// Server is the Bot API's address. Default: https://api.telegram.org.
	Server string `yaml:"server"`
	// Local is the folder of the files of a Bot API server of one's own that was started with
	// --local. Empty: it was not.
	Local string `yaml:"local"`
	// Webhook is the public address under which Telegram calls the bridge;
	// it must end in /telegram/webhook. Empty: long polling.
	Webhook string `yaml:"webhook"`
	// WebhookSecret is sent by Telegram with each call.
	WebhookSecret Secret `yaml:"webhook_secret"`
	// Inline lets people call the bot from any chat. Default: no.
	Inline bool `yaml:"inline"`
	// Rate multiplies the rate limits of calls, for your own Bot API server.
	// Default: 1.
	Rate float64 `yaml:"rate"`
}

// Webchat is the section of that name.
type Webchat struct {
	Secret    Secret `yaml:"secret"`
	Callback  string `yaml:"callback"`
	FilesFrom string `yaml:"files_from"`
}

// Discord is the section of that name.
type Discord struct {
	// Token is the bot's. Default: the variable COMFYHUB_DISCORD_TOKEN.
	Token Secret `yaml:"token"`
	// Server is the address of the REST API, with its version.
	// Default: https://discord.com/api/v10.
	Server string `yaml:"server"`
	// Guilds and Roles are ids: if there are any, nobody else is listened to.
	Guilds []string `yaml:"guilds"`
	Roles  []string `yaml:"roles"`
	// Direct admits direct messages. Default: true if neither guilds nor roles are
	// named, because a stranger needs only one server in common with the bot.
	Direct *bool `yaml:"direct"`
	// UploadMB and DownloadMB are how large a file may be that is sent, or that
	// somebody sends, in MiB. Default: 10 and 20.
	UploadMB   int64 `yaml:"upload_mb"`
	DownloadMB int64 `yaml:"download_mb"`
}

// AdmitsDirect reports whether direct messages are admitted.
func (d *Discord) AdmitsDirect() bool {
	if d.Direct != nil {
		return *d.Direct
	}
	return len(d.Guilds)+len(d.Roles) == 0
}

// Secret says where a secret is.
type Secret struct {
	// Env is a variable, File a path.
	Env  string `yaml:"env"`
	File string `yaml:"file"`
}

// UnmarshalYAML parses where a secret is. A wrong value may be the secret itself,
// so errors do not quote it.
func (s *Secret) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a secret is {env: VARIABLE} or {file: PATH}, never the text itself", node.Line)
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch key.Value {
		case "env":
			s.Env = value.Value
		case "file":
			s.File = value.Value
		default:
			return fmt.Errorf("line %d: %s: a secret is {env: VARIABLE} or {file: PATH}", key.Line, key.Value)
		}
	}
	return nil
}

// Read reads the secret; "" if none is named.
func (s Secret) Read(folder string) (string, error) {
	switch {
	case s.Env != "" && s.File != "":
		return "", errors.New("a secret comes from env or from file, not from both")
	case s.Env != "":
		value := os.Getenv(s.Env)
		if value == "" {
			return "", fmt.Errorf("the variable %s is not set", s.Env)
		}
		return value, nil
	case s.File != "":
		data, err := os.ReadFile(within(folder, s.File))
		if err != nil {
			return "", err
		}
		return strings.TrimSpace(string(data)), nil
	}
	return "", nil
}

// Command is a command as written, with its place in the help.
type Command struct {
	Name string
	workflow.Spec
}

// Commands keep the order of the file.
type Commands []Command

// UnmarshalYAML implements yaml.Unmarshaler.
func (c *Commands) UnmarshalYAML(node *yaml.Node) error {
	return eachNamed(node, "command", func(name string, _ int, spec workflow.Spec) {
		*c = append(*c, Command{Name: name, Spec: spec})
	})
}

// eachNamed reads a map from names to options in the order of the file. noun is what one of
// them is called.
func eachNamed[Options any](node *yaml.Node, noun string, add func(name string, line int, o Options)) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: %ss must be a map of names", node.Line, noun)
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if line, twice := lines[key.Value]; twice {
			return fmt.Errorf("line %d: there is already a %s %s, on line %d", key.Line, noun, key.Value, line)
		}
		lines[key.Value] = key.Line
		var o Options
		if value.Kind != yaml.MappingNode && slices.Contains(optionsOf(o), key.Value) {
			return fmt.Errorf("line %d: %q is an option of a %s: indent it more than the %s's name", key.Line, key.Value, noun, noun)
		}
		if err := known(value, o); err != nil {
			return fmt.Errorf("%s %s: %w", noun, key.Value, err)
		}
		if err := value.Decode(&o); err != nil {
			return fmt.Errorf("%s %s: %w", noun, key.Value, plain(err))
		}
		add(key.Value, key.Line, o)
	}
	return nil
}

// Load reads a file that a bridge can run with. The variables COMFYHUB_BOT_HUB, _REDIS, _DATA, _LISTEN,
// _FILES_URL and _SERVER, and COMFYHUB_DISCORD_SERVER, override it.
func Load(path string) (*Config, error) {
	c, err := Read(path)
	if err != nil {
		return nil, err
	}
	if problems := c.Placed(c.Problems()); len(problems) > 0 {
		return nil, errors.New(strings.Join(problems, "\n"))
	}
	return c, nil
}

// Read reads a file, which may have Problems.
func Read(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := Parse(data)
	if err != nil {
		return nil, errors.New(strings.Join(place{path: path}.all([]error{err}), "\n"))
	}
	var document yaml.Node
	if c.place.path = path; yaml.Unmarshal(data, &document) == nil && len(document.Content) > 0 {
		c.place.root = document.Content[0]
	}
	c.Folder = filepath.Dir(path)
	c.environment()
	c.defaults()
	return c, nil
}

// Parse parses the text of a file. Unknown words are errors.
func Parse(data []byte) (*Config, error) {
	var c Config
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty")
	} else if err != nil {
		return nil, plain(err)
	}
	return &c, nil
}

func (c *Config) environment() {
	for name, field := range map[string]*string{
		"HUB": &c.Hub, "REDIS": &c.Redis, "DATA": &c.Data, "LISTEN": &c.Listen, "FILES_URL": &c.FilesURL,
	} {
		if value := os.Getenv("COMFYHUB_BOT_" + name); value != "" {
			*field = value
		}
	}
	if file := os.Getenv("COMFYHUB_BOT_REDIS_FILE"); file != "" && c.Redis == "" {
		// If it cannot be read, the connection says so: an empty name is no address.
		url, _ := os.ReadFile(file)
		c.Redis = cmp.Or(strings.TrimSpace(string(url)), "redis://")
	}
	if c.HubKey == (Secret{}) {
		if os.Getenv("COMFYHUB_BOT_HUB_KEY") != "" {
			c.HubKey.Env = "COMFYHUB_BOT_HUB_KEY"
		} else {
			c.HubKey.File = os.Getenv("COMFYHUB_BOT_HUB_KEY_FILE")
		}
	}
	if value := os.Getenv("COMFYHUB_BOT_SERVER"); value != "" && c.Telegram != nil {
		c.Telegram.Server = value
	}
	if value := os.Getenv("COMFYHUB_DISCORD_SERVER"); value != "" && c.Discord != nil {
		c.Discord.Server = value
	}
}

func (c *Config) defaults() {
	for field, value := range map[*string]string{
		&c.Hub: "http://127.0.0.1:8188", &c.Redis: "embedded", &c.Prefix: "botbridge", &c.Data: filepath.Join("data", "botbridge"),
		&c.Listen: "127.0.0.1:8190",
	} {
		if *field == "" {
			*field = value
		}
	}
	if c.Telegram != nil && c.Telegram.Token == (Secret{}) {
		c.Telegram.Token.Env = "COMFYHUB_BOT_TOKEN"
	}
	if c.Discord != nil && c.Discord.Token == (Secret{}) {
		c.Discord.Token.Env = "COMFYHUB_DISCORD_TOKEN"
	}
}

// isName reports whether Telegram accepts a name as a command.
func isName(name string) bool {
	const longest = 32
	return name != "" && len(name) <= longest && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func within(folder, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}
