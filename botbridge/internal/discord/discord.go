// Package discord implements the chat platform Discord.
//
// Slash commands, buttons, menus and messages come in through Discord's gateway, a
// WebSocket; what the bridge says goes out through its REST API. The two Go
// libraries for it were compared, discordgo (v0.29) and disgo (v0.18). discordgo
// keeps every address in variables of the package, so that no two tests can have a
// fake of their own, opens its connection without a context, and sleeps through rate
// limits. disgo has typed commands, components and messages that follow the
// documents, and no global state; it is used for what goes over the wire (its package
// discord). Neither library's connections are used: disgo's gateway does not notice
// that a connection has gone silent, and both count an event as received before
// anybody has stored it. Both hold whole uploads in memory, repeat calls by
// themselves, and do not tell a call that was never sent from one that took effect.
// Here gateway.go and rest.go do that, on net/http and coder/websocket.
//
// # A slash command
//
// Discord wants an answer within three seconds, whatever the hub does. The gateway's
// reader therefore defers it at once ("thinking…") and stores the event afterwards.
// The deferred answer is the user's message to the rest of the bridge: the first post
// that replies to it replaces it, and later edits go to it. Its token works for 15
// minutes; after that it is an ordinary message of the bot, and is edited as such
// (answers.go).
//
// # A form
//
// A form must be the first answer to a press, so the press is not deferred before it is
// known whether it opens one (form.go). Such a press is no event: what was filled in is,
// and is stored and answered like a press. If the form cannot be shown, the press is an
// event after all.
package discord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// Name is the platform's name.
const Name = "discord"

// MaxCommands is how many slash commands a bot can have.
const MaxCommands = 100

// What Discord allows; see https://docs.discord.com/developers/resources/message and
// the pages on components and commands.
const (
	maxText      = 2000
	usualText    = 1800 // of which some characters get a backslash
	maxUpload    = 10 << 20
	maxDownload  = 20 << 20
	maxFiles     = 10
	maxRows      = 5
	maxInRow     = 5
	maxMenu      = 25
	maxCustomID  = 100
	maxLabel     = 80
	maxURL       = 512
	maxTitle     = 45 // also of a field
	maxFields    = 5
	maxFilled    = 4000
	maxMenuLabel = 100
	maxNonce     = 25
	maxOnMessage = 15
	maxOptions   = 25
	maxChoices   = 25
	maxAbout     = 100
	// maxCommandName is the length of what a command is called.
	maxCommandName = 32
	maxWholeValue  = 1<<53 - 1
	// knowsFor is how long a nonce is surely remembered: "the past few minutes".
	knowsFor = 2 * time.Minute
)

// Memory keeps what must outlive the process: sessions, and the tokens of answers.
type Memory interface {
	// Get reads a value; false if there is none.
	Get(ctx context.Context, name string, into any) (bool, error)
	// Put stores a value for a time; 0 means for ever.
	Put(ctx context.Context, name string, value any, keep time.Duration) error
}

// Options say how to reach Discord and who may come from there. Token, Memory and Say
// are required.
type Options struct {
	Token string
	// Server is the address of the REST API, with its version.
	// Default: https://discord.com/api/v10.
	Server string
	// Guilds and Roles, if not empty, are the only servers, and the only roles there,
	// whose members are listened to.
	Guilds, Roles []string
	// Direct admits direct messages.
	Direct bool
	// Upload is how large a file may be, in bytes. Default: 10 MiB.
	Upload int64
	// Download is how large a picture that somebody sends may be, in bytes.
	// Default: 20 MiB.
	Download int64
	// TokenLife is how long the token of an answer is used. Default: 14 minutes;
	// Discord takes it for 15.
	TokenLife time.Duration
	// IdentifyEvery is the shortest pause between two new sessions. Default: 5 s.
	IdentifyEvery time.Duration
	// Commands are the slash commands.
	Commands []Command
	// Suggest returns values while somebody fills in an argument. nil: there are none.
	Suggest platform.Suggest
	// Form returns the form that a press opens. nil: none does.
	Form platform.Forms
	// Say returns a text of the bridge in a language.
	Say    func(language, key string) string
	Memory Memory
	// HTTP makes the connections. Default: http.DefaultTransport's settings.
	HTTP   *http.Transport
	Logger *slog.Logger
}

// Discord is the platform. It implements platform.Platform.
type Discord struct {
	*account
	*sender
	*receiver
	o   Options
	cdn []string // hosts of files that people send

	listens  atomic.Int64          // since when, 0 while it does not
	heard    atomic.Int64          // when the gateway last said anything
	trouble  atomic.Pointer[error] // why events do not come, nil if they do
	sessions *semaphore.Weighted   // one Listen at a time
}

// account is the bot at Discord, and what it may do with the token of an interaction.
type account struct {
	rest *rest
	me   atomic.Pointer[identity]
}

// sender says what the bridge says.
type sender struct {
	*account
	answers *answers
}

// receiver makes events of what people do, and answers interactions in time.
type receiver struct {
	*account
	o       *Options
	answers *answers
	// suggesting holds a token for each suggestion that is being made.
	suggesting chan struct{}
}

// identity is who the bot is.
type identity struct{ application, user string }

var _ platform.Platform = (*Discord)(nil)

// ErrToken means that Discord knows no bot with the token.
var ErrToken = errors.New("Discord knows no bot with this token")

// New returns the platform. It does not connect, because a bridge must start while
// Discord is unreachable.
func New(o Options) (*Discord, error) {
	if o.Token == "" {
		return nil, errors.New("discord: there is no token")
	}
	own := o.Server != ""
	if !own {
		o.Server = "https://discord.com/api/v10"
	}
	server, err := url.Parse(o.Server)
	if err != nil || server.Host == "" {
		return nil, errors.New("discord: server: this is not an address")
	}
	for field, value := range map[*int64]int64{&o.Upload: maxUpload, &o.Download: maxDownload} {
		if *field == 0 {
			*field = value
		}
	}
	o.TokenLife = cmp.Or(o.TokenLife, 14*time.Minute)
	o.IdentifyEvery = cmp.Or(o.IdentifyEvery, 5*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.HTTP == nil {
		o.HTTP = http.DefaultTransport.(*http.Transport)
	}
	transport := o.HTTP.Clone()
	transport.MaxIdleConnsPerHost = 32
	// All calls share one HTTP/2 connection. If it goes silent, every later call would
	// be lost on it too.
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: probe, PingTimeout: probe}
	d := &Discord{o: o, sessions: semaphore.NewWeighted(1), cdn: []string{"cdn.discordapp.com", "media.discordapp.net"}}
	if own {
		d.cdn = append(d.cdn, server.Host)
	}
	d.account = &account{rest: newREST(strings.TrimRight(o.Server, "/"), o.Token, transport)}
	answers := newAnswers(o.Memory, o.TokenLife)
	d.sender = &sender{d.account, answers}
	d.receiver = &receiver{d.account, &d.o, answers, make(chan struct{}, maxSuggesting)}
	return d, nil
}

// probe is how long an HTTP/2 connection may be silent before it is tested, and how
// long the test may take.
const probe = 10 * time.Second

// Close drops idle connections.
func (d *Discord) Close() { d.rest.http.CloseIdleConnections() }

// Name implements platform.Platform.
func (d *Discord) Name() string { return Name }

// Routes implements platform.Platform: Discord does not call the bridge.
func (d *Discord) Routes(platform.Admit) map[string]http.Handler { return nil }

// Limits implements platform.Platform. The pauses are Discord's of 2026, of which it
// says that they may change; what it tells in headers is obeyed as well.
func (d *Discord) Limits() platform.Limits {
	return platform.Limits{
		Covers:     true,
		KnowsPosts: true, KnowsPostsFor: knowsFor, InPlace: true, Forms: d.o.Form != nil,
		Text: usualText, Caption: usualText, Photo: d.o.Upload, File: d.o.Upload, Album: maxFiles,
		PerSecond: 45, ChatEvery: 1050 * time.Millisecond, EditEvery: 2 * time.Second, GroupEditEvery: 3 * time.Second,
	}
}

// Me returns the bot's own name; ErrToken if there is no such bot.
func (d *account) Me(ctx context.Context) (string, error) {
	var app struct {
		ID  string `json:"id"`
		Bot *struct {
			ID       string `json:"id"`
			Username string `json:"username"`
		} `json:"bot"`
	}
	if err := d.rest.do(ctx, call{method: http.MethodGet, path: "/applications/@me"}, &app); err != nil {
		return "", err
	}
	if app.Bot == nil {
		return "", errors.New("discord: the application has no bot")
	}
	d.me.Store(&identity{application: app.ID, user: app.Bot.ID})
	return app.Bot.Username, nil
}

// whoami returns who the bot is, and asks if that is not known.
func (d *account) whoami(ctx context.Context) (identity, error) {
	if me := d.me.Load(); me != nil {
		return *me, nil
	}
	if _, err := d.Me(ctx); err != nil {
		return identity{}, fmt.Errorf("asking who the bot is: %w", err)
	}
	return *d.me.Load(), nil
}

// silence is how long the gateway may say nothing, reconnections included.
const silence = 3 * time.Minute

// Health returns why no events come, nil if they do, or if it is not for this process
// to receive them.
func (d *Discord) Health(now time.Time) error {
	since := d.listens.Load()
	if since == 0 {
		return nil
	}
	trouble := d.trouble.Load()
	if trouble != nil && (errors.Is(*trouble, ErrToken) || errors.Is(*trouble, errRefused)) {
		return *trouble
	}
	if now.Sub(time.Unix(0, max(since, d.heard.Load()))) > silence {
		return errors.New("Discord has been silent for too long")
	}
	return nil
}
