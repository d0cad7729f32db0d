// Package conversation answers users: commands that make pictures, commands about
// those, buttons, settings, and the operator's commands.
//
// [Talk.Handle] may be called again for an event that was partly handled when the
// bridge ended: a request is named after the event that asked for it, so that the
// second call finds the first request.
package conversation

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// Options are what a Talk works with; all but Default, Enhance, Terms and HelpURL are required.
type Options struct {
	Store    *state.Store
	Hub      *hubapi.Client
	Outbox   *outbox.Outbox
	Runner   *request.Runner
	Guard    *limits.Guard
	Texts    *locale.Bundle
	Platform func(name string) platform.Platform
	// Commands are all commands in the order of the help.
	Commands []*workflow.Command
	// Default is the command for words without one in a private chat, "" for
	// none.
	Default string
	// Edit is the command for a picture with words but without a command, "" for none.
	Edit string
	// Upscale is the command behind the button of that name, "" for none.
	Upscale string
	// Enhance finds other words; nil for not at all.
	Enhance *Enhance
	// Terms have to be accepted before a request; nil for none.
	Terms *Terms
	// Contact is whom people write to about payments, "" if nothing is for sale.
	Contact string
	// Vary is the command behind the buttons V1 to V4, "" for the request's own.
	Vary string
	// HelpURL is a page about the bot that /help links to, "" for none.
	HelpURL string
	Logger  *slog.Logger
	// AlbumWait is how long a command waits for the mask in its album. Default: 10 s.
	AlbumWait time.Duration
}

// Talk answers users.
//
// Many methods: one method for each command and button; what they share is only
// what they are given.
type Talk struct {
	o        Options
	catalogs *catalogs
	declared []platform.Command // see Suggest
	byName   map[string]*workflow.Command
	builtIn  map[string]func(context.Context, *turn) error
	admin    map[string]func(context.Context, *turn) error

	mu        sync.Mutex
	met       map[string]string    // the last user of a chat, as noted for broadcasts
	hinted    map[string]time.Time // by chat: hints are not repeated at once
	spreads   map[string]bool      // broadcasts in progress in this process
	menus     map[string]time.Time // by group: its menu is being set, or left alone until then
	spreading sync.WaitGroup       // what nobody waits for

	groups sync.Mutex // held while settings of a group change
}

// turn is one event and its author.
type turn struct {
	platform.Event
	p        platform.Platform
	settings Settings
	group    GroupSettings
	// own is the language of the author, language the one to answer in.
	own, language string
	// rest is what follows the command.
	rest string
	// under is the message whose button was pressed, or the one that asks about a picture.
	under string
	// shown are the pictures of the bridge that the message answers to; given are inputs
	// from before it.
	shown, given []request.Input
	// answers is the question that the message answers, if any.
	answers *question
	// instead is the request that a changed message replaces, if any.
	instead *request.Record
	// better means that other words are wished for.
	better bool
	// agreed means that its author has accepted the terms.
	agreed bool
}

func (t *turn) who() string { return request.Who(t.Platform, t.User.ID) }

// New returns a Talk.
func New(o Options) *Talk {
	if o.AlbumWait == 0 {
		o.AlbumWait = albumWait
	}
	t := &Talk{o: o, catalogs: newCatalogs(o.Hub), declared: Declare(o.Texts, o.Commands, o.Enhance != nil), byName: map[string]*workflow.Command{}, hinted: map[string]time.Time{}, met: map[string]string{}, spreads: map[string]bool{}, menus: map[string]time.Time{}}
	for _, c := range o.Commands {
		t.byName[c.Name] = c
	}
	t.builtIn = map[string]func(context.Context, *turn) error{
		"start": t.greet, "help": t.help, "queue": t.queue, "status": t.status, "cancel": t.cancel,
		"settings": t.showSettings, "why": t.why, "export": t.export, "forget": t.forget,
		"info": t.info, "delete": t.remove, "remix": t.remix, "styles": t.listStyles,
		"my": t.my, "models": t.models,
	}
	if o.Enhance != nil {
		t.builtIn[enhanceFlag] = t.enhance
	}
	t.admin = map[string]func(context.Context, *turn) error{
		"ban": t.ban, "unban": t.unban, "quota": t.quota, "stats": t.stats, "broadcast": t.broadcast,
	}
	if o.Contact != "" {
		t.builtIn["paysupport"], t.builtIn["terms"] = t.paySupport, t.showTerms
	}
	return t
}

// Reserved returns the names that no workflow can have. enhance means that there are
// other words to ask for.
func Reserved(enhance bool) []string {
	names := []string{
		"start", "help", "queue", "status", "cancel", "settings", "why", "export", "forget", "info", "delete", "remix", "styles", "my", "models", "ban", "unban", "quota",
		"stats", "broadcast",
	}
	if enhance {
		names = append(names, enhanceFlag)
	}
	return names
}

// Selling returns further names that no workflow can have where something has a price,
// SellingMenu those of them that everybody may use.
func Selling() []string { return append(SellingMenu(), refundCommand) }

// SellingMenu returns the names of the commands that everybody may use where something has a
// price, in the order in which platforms show them.
func SellingMenu() []string { return []string{"paysupport", "terms"} }

// Menu returns the names of the bridge's own commands that everybody may use, in the
// order in which platforms show them. enhance means that there are other words to ask for.
func Menu(enhance bool) []string {
	own := []string{"my", "models", "queue", "why", "cancel", "status", "settings", "export", "forget", "help"}
	if enhance {
		return append([]string{enhanceFlag}, own...)
	}
	return own
}

// Handle answers one event. An error means that it should be handled again.
func (t *Talk) Handle(ctx context.Context, e platform.Event) error {
	if t.o.Platform(e.Platform) == nil {
		return nil
	}
	if e.Payment != nil {
		return t.payment(ctx, e)
	}
	if e.Kind == platform.Moved {
		return t.Moved(ctx, e.Platform, e.Chat.ID, e.To)
	}
	if e.Kind == platform.Left {
		return errors.Join(t.left(ctx, ChatKey(e.Platform, e.Chat)), t.leftGroup(ctx, e))
	}
	standing, err := t.o.Guard.Standing(ctx, e)
	if err != nil {
		return err
	}
	tn, err := t.turnOf(ctx, e)
	if err != nil {
		return err
	}
	switch standing {
	case limits.Banned:
		return t.keepOut(ctx, tn, "")
	case limits.Stranger:
		if tn.Chat.Group && tn.Kind != platform.Pressed {
			return nil // others talk there, and did not ask for a bot that is not theirs
		}
		return t.keepOut(ctx, tn, t.say(tn, "private", locale.With{"id": tn.who()}))
	case limits.Welcome:
	}
	if flood, tell := t.o.Guard.Flood(e, time.Now()); flood {
		text := ""
		if tell {
			text = t.say(tn, "too_fast", nil)
		}
		return t.keepOut(ctx, tn, text)
	}
	if err := t.meet(ctx, e); err != nil {
		return err
	}
	err = t.act(ctx, tn)
	t.keepMenu(ctx, tn)
	return err
}

// turnOf returns the turn of an event.
func (t *Talk) turnOf(ctx context.Context, e platform.Event) (*turn, error) {
	tn := &turn{Event: e, p: t.o.Platform(e.Platform)}
	var err error
	if tn.settings, err = t.settings(ctx, tn.who()); err != nil {
		return nil, err
	}
	if tn.group, err = t.groupSettings(ctx, e); err != nil {
		return nil, err
	}
	tn.speak(t.o.Texts)
	return tn, nil
}

// act does what an event asks for, as soon as its author has accepted the terms.
func (t *Talk) act(ctx context.Context, tn *turn) (err error) {
	e := tn.Event // a turn changes its own
	switch e.Kind {
	case platform.Pressed:
		err = t.pressed(ctx, tn)
	case platform.Edited:
		err = t.edited(ctx, tn)
	case platform.Said, platform.Left, platform.Moved, platform.Checkout, platform.Paid:
		err = t.said(ctx, tn)
	}
	if errors.Is(err, errTerms) {
		return t.askTerms(ctx, tn, e)
	}
	return err
}

// maxMet bounds the chats that are known in memory to be noted.
const maxMet = 10_000

// meet notes a chat for broadcasts.
func (t *Talk) meet(ctx context.Context, e platform.Event) error {
	key := ChatKey(e.Platform, e.Chat)
	t.mu.Lock()
	user, known := t.met[key]
	t.mu.Unlock()
	if known && user == e.User.ID {
		return nil
	}
	if err := t.o.Store.Meet(ctx, key, e.User.ID); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.met) >= maxMet {
		clear(t.met)
	}
	t.met[key] = e.User.ID
	return nil
}

// left forgets a chat that the bridge may not write to, until somebody writes there.
func (t *Talk) left(ctx context.Context, key string) error {
	t.mu.Lock()
	delete(t.met, key)
	t.mu.Unlock()
	return t.o.Store.Leave(ctx, key)
}

// keepOut answers a user whose message is not acted on.
func (t *Talk) keepOut(ctx context.Context, tn *turn, text string) error {
	if tn.Kind == platform.Pressed {
		t.o.Outbox.Answer(ctx, tn.p, tn.Press, text)
		return nil
	}
	if text == "" || !t.mayHint(tn) {
		return nil
	}
	return t.reply(ctx, tn, text)
}

// said answers a message.
func (t *Talk) said(ctx context.Context, tn *turn) error {
	name, rest, ok := commandOf(tn.Message.Text)
	if !ok {
		return t.words(ctx, tn)
	}
	tn.rest = rest
	if answer := t.builtIn[name]; answer != nil {
		return answer(ctx, tn)
	}
	if answer := t.admin[name]; answer != nil && t.o.Guard.Admin(tn.Event) {
		return answer(ctx, tn)
	}
	if c := t.byName[name]; c != nil {
		return t.ask(ctx, tn, c)
	}
	if name == refundCommand && t.o.Guard.Admin(tn.Event) {
		return t.refundByHand(ctx, tn) // also of what was sold before
	}
	if tn.Chat.Group {
		// It may be for another bot.
		return nil
	}
	return t.reply(ctx, tn, t.say(tn, "unknown_command", nil))
}

// mayHint reports whether a chat has had no hint for a while.
func (t *Talk) mayHint(tn *turn) bool {
	const pause = 30 * time.Second
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for chat, last := range t.hinted {
		if now.Sub(last) > pause {
			delete(t.hinted, chat)
		}
	}
	key := tn.Platform + ":" + tn.Chat.ID
	if _, hinted := t.hinted[key]; hinted {
		return false
	}
	t.hinted[key] = now
	return true
}

// commandOf splits "/name rest".
func commandOf(text string) (name, rest string, ok bool) {
	text = strings.TrimSpace(text)
	if len(text) < 2 || text[0] != '/' {
		return "", "", false
	}
	name = text[1:]
	if end := strings.IndexAny(name, " \t\n"); end >= 0 {
		name, rest = name[:end], strings.TrimSpace(name[end:])
	}
	const longest = 64
	if len(name) > longest {
		return "", rest, true
	}
	return strings.ToLower(name), rest, true
}

// say is a text in the language of the turn.
func (t *Talk) say(tn *turn, key string, with locale.With) string {
	return t.o.Texts.Say(tn.language, key, with)
}

// reply answers the message of a turn, for its author alone where the platform can.
func (t *Talk) reply(ctx context.Context, tn *turn, text string) error {
	return t.post(ctx, tn, platform.Post{Text: text, ReplyTo: tn.Message.ID, Private: true, Press: tn.Press})
}

// post sends a message and waits until that is done. What a platform will never
// accept is not repeated. What got no answer was not said: the event is handled
// again.
func (t *Talk) post(ctx context.Context, tn *turn, post platform.Post) error {
	_, err := t.send(ctx, tn, post)
	return err
}

// send does the same, and returns the ids of the messages.
func (t *Talk) send(ctx context.Context, tn *turn, post platform.Post) ([]string, error) {
	ids, err := t.sendOn(ctx, tn, post)
	if err == nil || platform.Permanent(err) || errors.Is(err, outbox.ErrGaveUp) || errors.Is(err, outbox.ErrFull) {
		return ids, nil
	}
	return nil, err
}

// mayPass reports whether handling the event again may help.
func mayPass(err error) bool {
	return errors.Is(err, state.ErrUnavailable) || errors.Is(err, state.ErrDeposed) || errors.Is(err, outbox.ErrNotSent) ||
		errors.Is(err, context.Canceled)
}
