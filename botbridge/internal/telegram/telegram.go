// Package telegram implements the chat platform Telegram with the library
// go-telegram/bot.
//
// The library makes one attempt per call, and confirms updates to Telegram before
// it passes them to handlers. Here the outcome of a call is determined from what
// went over the wire, updates are stored before Telegram forgets them (poll.go),
// and a webhook's body and secret are checked before they are parsed (webhook.go).
package telegram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-telegram/bot"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// Name is the platform's name.
const Name = "telegram"

// What the Bot API allows; see https://core.telegram.org/bots/faq and the
// limits at sendPhoto, sendDocument and getFile.
const (
	maxText     = 4096
	maxCaption  = 1024
	maxPhoto    = 10 << 20
	maxFile     = 50 << 20
	maxDownload = 20 << 20
	maxLocal    = 2000 << 20 // instead of the last two, with a server of one's own
	maxAlbum    = 10
	maxSides    = 10_000 // width and height of a photo together
	maxShape    = 20     // the longer side of a photo / the shorter one
)

// What the menu holds, and the length of a line in it in characters; see setMyCommands.
const (
	MaxCommands = 100
	MaxAbout    = 256
)

// Options say how to reach Telegram. Only the token is required.
type Options struct {
	Token string
	// Server is the Bot API's address. Default: https://api.telegram.org.
	Server string
	// Local is the folder in which a Bot API server of one's own, started with --local, keeps
	// files; "" for a server that passes them on. With it, files have up to 2000 MiB.
	Local string
	// PollTimeout is how long Telegram holds a poll. Default: 50 s.
	PollTimeout time.Duration
	// Webhook is the public https URL under which Telegram calls the bridge; empty
	// means long polling. Telegram sends Secret with each call.
	Webhook string
	Secret  string
	// Rate multiplies the rate limits, for your own server with other limits.
	// Default: 1.
	Rate float64
	// Probe is how long an HTTP/2 connection may be silent before it is tested, and
	// how long the test may take. Default: 10 s.
	Probe time.Duration
	// HTTP makes the connections. Default: http.DefaultTransport's settings.
	HTTP *http.Transport
	// Inline means that people may call the bot from any chat, if BotFather lets them.
	Inline bool
	// Commands are shown in the menu, by language; "" is for all others.
	Commands map[string][]Command
	Logger   *slog.Logger
}

// Command is a line of the menu.
type Command struct{ Name, About string }

// Telegram is the platform. It implements platform.Platform.
type Telegram struct {
	sender
	reader
	o        Options
	http     *http.Client
	plain    plainAPI
	lastPoll atomic.Int64
	listens  atomic.Int64          // since when, 0 while it does not
	trouble  atomic.Pointer[error] // why updates do not come, nil if they do
}

// sender says what the bridge says.
type sender struct {
	bot     *bot.Bot
	numbers *numbers
}

// reader makes events of updates.
type reader struct {
	self    atomic.Pointer[me] // nil until Telegram has said it
	numbers *numbers           // of the sender
}

var _ platform.Platform = (*Telegram)(nil)

// New returns the platform. It does not connect, because a bridge must start while
// Telegram is unreachable.
func New(o Options) (*Telegram, error) {
	if o.Server == "" {
		o.Server = "https://api.telegram.org"
	}
	o.PollTimeout = cmp.Or(o.PollTimeout, 50*time.Second)
	o.Rate = cmp.Or(o.Rate, 1)
	o.Probe = cmp.Or(o.Probe, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Webhook != "" && o.Secret == "" {
		return nil, errors.New("a webhook needs a secret: without one anybody could send updates")
	}
	if o.HTTP == nil {
		o.HTTP = http.DefaultTransport.(*http.Transport)
	}
	transport := o.HTTP.Clone()
	transport.MaxIdleConnsPerHost = 32
	// All calls share one HTTP/2 connection. If it goes silent, a call that runs out
	// of time does not end it, and every later one would be lost on it too.
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: o.Probe, PingTimeout: o.Probe}
	// No timeout of the client: it would bound uploads too. Each call brings
	// its own.
	t := &Telegram{o: o, http: &http.Client{Transport: transport}}
	t.plain = plainAPI{t.http, o.Server + "/bot" + o.Token + "/"}
	t.sender.numbers = newNumbers()
	t.reader.numbers = t.sender.numbers
	var err error
	t.bot, err = bot.New(o.Token, bot.WithSkipGetMe(), bot.WithServerURL(o.Server),
		bot.WithHTTPClient(o.PollTimeout, observer{t.http}),
		bot.WithErrorsHandler(func(err error) { o.Logger.Debug("telegram", "error", err) }))
	if err != nil {
		return nil, fmt.Errorf("telegram: %w", err)
	}
	return t, nil
}

// Close drops idle connections.
func (t *Telegram) Close() { t.http.CloseIdleConnections() }

// Name implements platform.Platform.
func (t *Telegram) Name() string { return Name }

// Limits implements platform.Platform.
func (t *Telegram) Limits() platform.Limits {
	scale := func(d time.Duration) time.Duration { return time.Duration(float64(d) / t.o.Rate) }
	// Until it is known whether the owner allows it, what people see is what the configuration says.
	self := t.self.Load()
	file := int64(maxFile)
	if t.o.Local != "" {
		file = maxLocal
	}
	return platform.Limits{
		Text: maxText, Caption: maxCaption, Photo: maxPhoto, File: file, Album: maxAlbum,
		MaxPrice: MaxPrice, CheckoutWithin: checkoutWithin,
		Inline: t.o.Inline && (self == nil || self.Inline),
		Covers: true, Recompresses: true, Sides: maxSides, Shape: maxShape, Videos: []string{".mp4", ".mov", ".m4v"},
		// Slightly below what is allowed: the network bunches up calls.
		PerSecond: 28 * t.o.Rate, ChatEvery: scale(1050 * time.Millisecond), GroupPerMinute: int(19 * t.o.Rate),
		EditEvery: scale(2 * time.Second), GroupEditEvery: scale(6 * time.Second),
	}
}

// ErrToken means that Telegram knows no bot with the token.
var ErrToken = errors.New("Telegram knows no bot with this token")

// ErrNoInline means that the bot's owner has not let people call it from any chat.
var ErrNoInline = errors.New("inline mode is off for this bot: /setinline of @BotFather turns it on")

// Me returns the bot's own name; ErrToken if there is no such bot, and ErrNoInline with its name
// if it cannot do what Options.Inline says.
func (t *Telegram) Me(ctx context.Context) (string, error) {
	me, err := t.plain.getMe(ctx)
	if err == nil && t.o.Inline && !me.Inline {
		err = ErrNoInline
	}
	return me.Username, err
}

// me is what the bridge wants to know of its bot. The library misspells the second.
type me struct {
	Username string
	Inline   bool `json:"supports_inline_queries"`
}

func (a plainAPI) getMe(ctx context.Context) (m me, err error) {
	err = a.call(ctx, "getMe", struct{}{}, &m)
	return m, err
}

// wrongToken reports whether a status means that there is no such bot: 401, or 404
// for a token that cannot be one.
func wrongToken(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusNotFound
}

// Health returns why no updates come, nil if they do, or if it is not for this process
// to fetch them.
func (t *Telegram) Health(now time.Time) error {
	since := t.listens.Load()
	if since == 0 {
		return nil
	}
	if trouble := t.trouble.Load(); trouble != nil && (errors.Is(*trouble, ErrToken) || t.o.Webhook != "") {
		return *trouble
	}
	last := max(since, t.lastPoll.Load())
	if t.o.Webhook == "" && now.Sub(time.Unix(0, last)) > t.o.PollTimeout+pollGrace {
		return errors.New("Telegram has not answered for too long")
	}
	return nil
}

// pollGrace is how much longer than a poll Telegram may be silent.
const pollGrace = 45 * time.Second

// Answer implements platform.Platform.
func (t *sender) Answer(ctx context.Context, press, text string) error {
	const maxAnswer = 200
	if runes := []rune(text); len(runes) > maxAnswer {
		text = string(runes[:maxAnswer-1]) + "…"
	}
	ctx, seen := observed(ctx)
	_, err := t.bot.AnswerCallbackQuery(ctx, &bot.AnswerCallbackQueryParams{CallbackQueryID: press, Text: text})
	return seen.explain(err)
}

// Delete implements platform.Platform.
func (t *sender) Delete(ctx context.Context, to platform.Chat, message string) error {
	ctx, seen := observed(ctx)
	_, err := t.bot.DeleteMessage(ctx, &bot.DeleteMessageParams{ChatID: to.ID, MessageID: number(message)})
	err = seen.explain(err)
	if errors.Is(err, platform.ErrGone) {
		return nil
	}
	return err
}

// Moderates implements platform.Moderated. An administrator who writes anonymously has the
// id of the group.
func (t *sender) Moderates(ctx context.Context, in platform.Chat, user string) (bool, error) {
	if user == in.ID {
		return true, nil
	}
	id, err := strconv.ParseInt(user, 10, 64)
	if err != nil {
		return false, nil //nolint:nilerr // nobody has such an id
	}
	ctx, seen := observed(ctx)
	m, err := t.bot.GetChatMember(ctx, &bot.GetChatMemberParams{ChatID: in.ID, UserID: id})
	if err := seen.explain(err); err != nil {
		return false, err
	}
	return m.Owner != nil || m.Administrator != nil && m.Administrator.CanDeleteMessages, nil
}

// Open implements platform.Platform. The URL of a file contains the token, so files
// are passed through and the URL is never revealed.
func (t *Telegram) Open(ctx context.Context, f platform.File) (io.ReadCloser, error) {
	if t.o.Local == "" && f.Size > maxDownload {
		return nil, platform.ErrTooLarge
	}
	asking, seen := observed(ctx)
	file, err := t.bot.GetFile(asking, &bot.GetFileParams{FileID: f.ID})
	if err := seen.explain(err); err != nil {
		if errors.Is(err, platform.ErrRefused) {
			return nil, platform.ErrGone
		}
		return nil, err
	}
	if t.o.Local != "" {
		return openLocal(t.o.Local, file.FilePath)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.bot.FileDownloadLink(file), nil)
	if err != nil {
		return nil, errors.New("telegram: the path of a file is no path")
	}
	response, err := t.http.Do(r)
	if err != nil {
		return nil, errors.New("telegram: fetching a file failed")
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		if response.StatusCode == http.StatusNotFound {
			return nil, platform.ErrGone
		}
		return nil, fmt.Errorf("telegram: fetching a file: status %d", response.StatusCode)
	}
	return response.Body, nil
}

// openLocal opens a file of a server with --local, which says where it is on its disk. Nothing
// outside its folder is read, whatever it says.
func openLocal(folder, path string) (io.ReadCloser, error) {
	within, err := filepath.Rel(folder, path)
	if err != nil {
		return nil, errors.New("telegram: the path of a file is no path")
	}
	file, err := os.OpenInRoot(folder, within)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, platform.ErrGone
	}
	if err != nil {
		return nil, errors.New("telegram: a file in the folder of local cannot be read")
	}
	return file, nil
}

// know fetches who the bot is, unless that is known.
func (t *Telegram) know(ctx context.Context) error {
	if t.self.Load() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	self, err := t.plain.getMe(ctx)
	if err == nil {
		t.self.Store(&self)
	}
	return err
}

// introduce fetches the bot's own name and registers its commands in the menu. It
// tries until ctx ends.
func (t *Telegram) introduce(ctx context.Context) {
	for pauses := retry.New(time.Second, time.Minute); ctx.Err() == nil; pauses.Wait(ctx) {
		if err := t.introduceOnce(ctx); err == nil {
			return
		} else if ctx.Err() == nil {
			t.o.Logger.Warn("cannot introduce the bot to Telegram", "error", err)
		}
	}
}

func (t *Telegram) introduceOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := t.know(ctx); err != nil {
		return err
	}
	if t.o.Inline && !t.self.Load().Inline {
		t.o.Logger.Warn("telegram.inline has no effect until /setinline of @BotFather turns it on for this bot")
	}
	for language, list := range t.o.Commands {
		if _, err := t.bot.SetMyCommands(ctx, &bot.SetMyCommandsParams{LanguageCode: language, Commands: menuOf(list)}); err != nil {
			return err
		}
	}
	return nil
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}
