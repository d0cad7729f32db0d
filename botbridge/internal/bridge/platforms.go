package bridge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/config"
	"github.com/comfyhub/comfyhub/botbridge/internal/conversation"
	"github.com/comfyhub/comfyhub/botbridge/internal/discord"
	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/telegram"
	"github.com/comfyhub/comfyhub/botbridge/internal/webchat"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// addPlatforms makes the platforms that are configured.
func (b *Bridge) addPlatforms(c *config.Config, commands []*workflow.Command) error {
	if c.Telegram != nil {
		token, err := c.TelegramToken()
		if err != nil {
			return err
		}
		secret, err := c.Telegram.WebhookSecret.Read(c.Folder)
		if err != nil {
			return err
		}
		t, err := telegram.New(telegram.Options{
			Token: token, Server: c.Telegram.Server, Local: c.Telegram.Local, Webhook: c.Telegram.Webhook, Secret: secret, Rate: c.Telegram.Rate, Inline: c.Telegram.Inline,
			Commands: b.menu(c, commands), Logger: b.log.With("platform", telegram.Name), HTTP: b.http,
		})
		if err != nil {
			return err
		}
		b.platforms[telegram.Name] = t
	}
	if c.Webchat != nil {
		secret, err := c.Webchat.Secret.Read(c.Folder)
		if err != nil {
			return err
		}
		w, err := webchat.New(webchat.Options{Secret: secret, Callback: c.Webchat.Callback, FilesFrom: c.Webchat.FilesFrom, HTTP: b.http})
		if err != nil {
			return err
		}
		b.platforms[webchat.Name] = w
	}
	if c.Discord != nil {
		d, err := b.discord(c, commands)
		if err != nil {
			return err
		}
		b.platforms[discord.Name] = d
	}
	if len(b.platforms) == 0 {
		return errors.New("no chat platform is configured: telegram, discord or webchat")
	}
	return nil
}

const letters = "abcdefghijklmnopqrstuvwxyz"

// menu returns the commands for Telegram's menu, in each language.
func (b *Bridge) menu(c *config.Config, commands []*workflow.Command) map[string][]telegram.Command {
	menu := map[string][]telegram.Command{}
	for _, language := range b.texts.Languages() {
		var list []telegram.Command
		for _, command := range commands {
			list = append(list, telegram.Command{Name: command.Name, About: conversation.About(command, language)})
		}
		own := conversation.MenuFor(commands, c.Enhance != nil)
		if c.Contact() != "" {
			own = append(own, conversation.SellingMenu()...)
		}
		for _, name := range own {
			list = append(list, telegram.Command{Name: name, About: b.texts.Say(language, "menu_"+name, nil)})
		}
		// Telegram knows languages of two letters.
		code, _, _ := strings.Cut(strings.ReplaceAll(language, "_", "-"), "-")
		if code = strings.ToLower(code); len(code) == 2 && menu[code] == nil && strings.Trim(code, letters) == "" {
			menu[code] = list
		}
		if language == locale.Default {
			menu[""] = slices.Clone(list)
		}
	}
	return menu
}

// admit stores an event. If that is impossible, the user is told once that the
// answer will take a while.
func (b *Bridge) admit(ctx context.Context, e platform.Event) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	chat := conversation.ChatKey(e.Platform, e.Chat)
	if err := b.notePart(ctx, e); err != nil {
		b.log.Warn("cannot store an event", "error", err)
		b.excuse(e, chat)
		return err
	}
	fresh, err := b.store.Inbox.Admit(ctx, e.Key(), conversation.Lane(e), e)
	switch {
	case err == nil:
		b.metrics.heard(e, fresh)
		b.mu.Lock()
		clear(b.excused)
		b.mu.Unlock()
		return nil
	case errors.Is(err, state.ErrFull) && e.Kind != platform.Paid:
		// Dropped, because one chat must not keep all others from being heard.
		b.metrics.dropped(e)
		b.log.Warn("a chat sends more than can be handled", "platform", e.Platform)
		b.decline(e, chat)
		return nil
	}
	b.log.Warn("cannot store an event", "error", err)
	b.excuse(e, chat)
	return err
}

// notePart remembers the picture of an album, if its author may use the bridge.
func (b *Bridge) notePart(ctx context.Context, e platform.Event) error {
	if e.Message.Album == "" {
		return nil
	}
	standing, err := b.guard.Standing(ctx, e)
	if err != nil || standing != limits.Welcome {
		return err
	}
	return conversation.NotePart(ctx, b.store, e)
}

// maxExcused bounds how many chats are remembered as told about an outage or skipped
// messages.
const maxExcused = 10_000

// declinePause is the pause before a chat is told again that messages are skipped.
const declinePause = time.Minute

// decline tells a chat that messages are skipped: at the first one, and then once in a
// while.
func (b *Bridge) decline(e platform.Event, chat string) {
	p := b.platforms[e.Platform]
	text := b.texts.Say(b.texts.Match(e.User.Language), "too_much", nil)
	if e.Kind == platform.Left || e.Kind == platform.Moved || e.Kind == platform.Queried || e.Payment != nil {
		return
	}
	b.mu.Lock()
	now := time.Now()
	for known, told := range b.declined {
		if now.Sub(told) > declinePause {
			delete(b.declined, known)
		}
	}
	_, known := b.declined[chat]
	known = known || len(b.declined) >= maxExcused
	if !known && e.Kind != platform.Pressed {
		b.declined[chat] = now
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), declinePause)
	switch {
	case e.Kind == platform.Pressed:
		go func() {
			defer cancel()
			b.out.Answer(ctx, p, e.Press, text)
		}()
	case known:
		cancel()
	default:
		go func() {
			defer cancel()
			standing, err := b.guard.Standing(ctx, e)
			if err == nil && standing == limits.Welcome {
				_, err = b.out.Send(ctx, p, e.Chat, platform.Post{Text: text, ReplyTo: e.Message.ID})
			}
			if err != nil {
				b.log.Debug("cannot tell a chat that messages are left out", "error", err)
			}
		}()
	}
}

// excuse tells a chat, once per outage, that its message is not lost.
func (b *Bridge) excuse(e platform.Event, chat string) {
	p := b.platforms[e.Platform]
	b.mu.Lock()
	known := b.excused[chat] || len(b.excused) >= maxExcused
	b.excused[chat] = true
	b.mu.Unlock()
	if known || e.Kind != platform.Said || b.guard.Stranger(e) {
		return
	}
	text := b.texts.Say(b.texts.Match(e.User.Language), "state_away", nil)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := b.out.SendOnce(ctx, p, e.Chat, platform.Post{Text: text, ReplyTo: e.Message.ID}, outbox.Once{}); err != nil {
			b.log.Debug("cannot tell a chat of the outage", "error", err)
		}
	}()
}
