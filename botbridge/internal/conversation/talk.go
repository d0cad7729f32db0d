// Package conversation answers users: commands that make pictures, commands about
// those, buttons, settings, and the operator's commands.
//
// [Talk.Handle] may be called again for an event that was partly handled when the
// bridge ended: a request is named after the event that asked for it, so that the
// second call finds the first request.
package conversation

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// Options configure a Talk; all but Default, Edit, Upscale, Enhance, Terms, Contact, Vary,
// Listener, HelpURL and AlbumWait are required.
type Options struct {
	Store    *state.Store
	Hub      *hubapi.Client
	Outbox   *outbox.Outbox
	Runner   *request.Runner
	Guard    *limits.Guard
	Texts    *locale.Bundle
	Platform func(name string) platform.Platform
	// Commands are all commands, in the order in which /help lists them.
	Commands []*workflow.Command
	// Default is the command for plain words in a private chat, "" for none.
	Default string
	// Edit is the command for a picture with plain words, "" for none.
	Edit string
	// Upscale is the command behind the button of that name, "" for none.
	Upscale string
	// Enhance rewords prompts; nil turns that off.
	Enhance *Enhance
	// Listener writes down voice messages; nil turns that off.
	Listener *Listener
	// Terms have to be accepted before a request; nil for none.
	Terms *Terms
	// Contact is where people write about payments, "" if nothing is for sale.
	Contact string
	// Vary is the command behind the buttons V1 to V4, "" for the one that made the
	// pictures.
	Vary string
	// HelpURL is a page about the bot that /help links to, "" for none.
	HelpURL string
	Logger  *slog.Logger
	// AlbumWait is how long a command waits for the mask in its album. Default: 10 s.
	AlbumWait time.Duration
}

// Talk answers users. It decides who is answered, and has one part for each thing that
// people do; New connects them.
type Talk struct {
	o           Options
	voice       *voice
	commands    *repertoire
	guests      *guests
	hints       *hints
	broadcasts  *broadcasts
	find        *finder
	operators   *operators
	handbook    *handbook
	inline      *inline
	groups      *groups
	turns       *turns
	shop        *shop
	consent     *consent
	intake      *intake
	questions   *questions
	progress    *progress
	privacy     *privacy
	gallery     *gallery
	rewording   *rewording
	sequels     *sequels
	menu        *pictureMenu
	workflows   *workflows
	removals    *removals
	styles      *pictureStyles
	remixes     *remixes
	groupPanel  *groupPanel
	panel       *settingsPanel
	asker       *asker
	menus       *groupMenus
	refunds     *refunds
	answers     *answers
	messages    *messages
	edits       *edits
	menuButtons *menuButtons
	buttons     *buttons
	forms       *forms
	completion  *completion
	admission   *admission
	recipes     *recipes
}

// New returns a Talk.
func New(o Options) *Talk {
	o.AlbumWait = cmp.Or(o.AlbumWait, albumWait)
	voice := &voice{texts: o.Texts, outbox: o.Outbox, store: o.Store, logger: o.Logger}
	catalogs := newCatalogs(o.Hub)
	t := &Talk{o: o, voice: voice}
	t.commands = newRepertoire(o)
	t.guests = &guests{store: o.Store, met: map[string]string{}}
	t.hints = &hints{hinted: map[string]time.Time{}}
	t.broadcasts = &broadcasts{store: o.Store, outbox: o.Outbox, guard: o.Guard, texts: o.Texts, platform: o.Platform, logger: o.Logger, guests: t.guests, spreads: map[string]bool{}}
	t.find = &finder{store: o.Store, runner: o.Runner, logger: o.Logger}
	t.operators = &operators{store: o.Store, outbox: o.Outbox, runner: o.Runner, guard: o.Guard, texts: o.Texts}
	t.admission = &admission{store: o.Store, outbox: o.Outbox, guard: o.Guard, voice: t.voice, desks: map[string]desk{}}
	t.handbook = &handbook{guard: o.Guard, enhance: o.Enhance, contact: o.Contact, helpURL: o.HelpURL, catalogs: catalogs, commands: t.commands}
	t.groups = &groups{store: o.Store, commands: t.commands, turn: semaphore.NewWeighted(1)}
	t.turns = &turns{store: o.Store, platform: o.Platform, voice: t.voice, groups: t.groups}
	t.shop = &shop{store: o.Store, runner: o.Runner, guard: o.Guard, platform: o.Platform, contact: o.Contact, logger: o.Logger, voice: t.voice, commands: t.commands, turns: t.turns}
	t.consent = &consent{store: o.Store, terms: o.Terms}
	t.intake = &intake{store: o.Store, runner: o.Runner, guard: o.Guard, logger: o.Logger, catalogs: catalogs, shop: t.shop, consent: t.consent}
	t.questions = &questions{store: o.Store}
	t.progress = &progress{store: o.Store, hub: o.Hub, runner: o.Runner, guard: o.Guard, texts: o.Texts, find: t.find, questions: t.questions}
	t.privacy = &privacy{store: o.Store, guests: t.guests, find: t.find}
	t.gallery = &gallery{store: o.Store, runner: o.Runner}
	t.rewording = &rewording{store: o.Store, outbox: o.Outbox, runner: o.Runner, guard: o.Guard, enhance: o.Enhance, logger: o.Logger, commands: t.commands, find: t.find, consent: t.consent, intake: t.intake}
	t.sequels = &sequels{runner: o.Runner, commands: t.commands, intake: t.intake}
	t.menu = &pictureMenu{hub: o.Hub, runner: o.Runner, texts: o.Texts, logger: o.Logger, commands: t.commands, find: t.find}
	t.recipes = &recipes{store: o.Store, guard: o.Guard, commands: t.commands, find: t.find, intake: t.intake}
	t.workflows = &workflows{recipes: t.recipes, hub: o.Hub, logger: o.Logger, commands: t.commands, menu: t.menu}
	t.removals = &removals{store: o.Store, outbox: o.Outbox, guard: o.Guard, logger: o.Logger, menu: t.menu}
	t.styles = &pictureStyles{commands: t.commands, find: t.find, intake: t.intake, menu: t.menu}
	t.remixes = &remixes{recipes: t.recipes, store: o.Store, runner: o.Runner, commands: t.commands, find: t.find, intake: t.intake, rewording: t.rewording, menu: t.menu}
	t.groupPanel = &groupPanel{guard: o.Guard, texts: o.Texts, commands: t.commands, groups: t.groups}
	t.panel = &settingsPanel{store: o.Store, texts: o.Texts, enhance: o.Enhance, groupPanel: t.groupPanel}
	t.asker = &asker{store: o.Store, albumWait: o.AlbumWait, commands: t.commands, find: t.find, consent: t.consent, intake: t.intake, questions: t.questions, rewording: t.rewording}
	t.inline = &inline{store: o.Store, runner: o.Runner, commands: t.commands, asker: t.asker, handbook: t.handbook, logger: o.Logger}
	t.menus = &groupMenus{outbox: o.Outbox, logger: o.Logger, commands: t.commands, groups: t.groups, until: map[string]time.Time{}}
	t.refunds = &refunds{store: o.Store, runner: o.Runner, platform: o.Platform, contact: o.Contact, logger: o.Logger, find: t.find}
	builtIn := map[string]func(context.Context, *turn) error{
		"start": t.inline.start, "help": t.handbook.help, "queue": t.progress.queue, "status": t.progress.status, "cancel": t.progress.cancel,
		"settings": t.panel.show, "why": t.progress.why, "export": t.privacy.export, "forget": t.privacy.forget,
		"info": t.workflows.info, "delete": t.removals.ask, "remix": t.remixes.remix, "styles": t.styles.list,
		"my": t.gallery.my, "models": t.handbook.models,
	}
	if o.Enhance != nil {
		builtIn[enhanceFlag] = t.asker.better
	}
	admin := map[string]func(context.Context, *turn) error{
		"ban": t.operators.ban, "unban": t.operators.unban, "quota": t.operators.quota, "stats": t.operators.stats, "broadcast": t.broadcasts.begin,
		"allow": t.admission.allow, "disallow": t.admission.disallow,
	}
	if o.Contact != "" {
		builtIn["paysupport"], builtIn["terms"] = t.refunds.support, t.consent.show
	}
	t.answers = &answers{runner: o.Runner, commands: t.commands, find: t.find, turns: t.turns, questions: t.questions, asker: t.asker}
	t.messages = &messages{hearing: &hearing{store: o.Store, with: o.Listener, consent: t.consent}, guard: o.Guard, commands: t.commands, hints: t.hints, find: t.find, refunds: t.refunds, questions: t.questions, remixes: t.remixes, asker: t.asker, builtIn: builtIn, admin: admin, answers: t.answers}
	t.edits = &edits{store: o.Store, runner: o.Runner, logger: o.Logger, commands: t.commands, find: t.find, rewording: t.rewording, remixes: t.remixes, asker: t.asker, messages: t.messages}
	t.menuButtons = &menuButtons{gallery: t.gallery, sequels: t.sequels, menu: t.menu, workflows: t.workflows, removals: t.removals, styles: t.styles, remixes: t.remixes}
	t.buttons = &buttons{outbox: o.Outbox, runner: o.Runner, guard: o.Guard, logger: o.Logger, find: t.find, privacy: t.privacy, gallery: t.gallery, rewording: t.rewording, sequels: t.sequels, groupPanel: t.groupPanel, panel: t.panel, accept: t.pressedAccept, recipes: t.recipes, admission: t.admission, answers: t.answers, menuButtons: t.menuButtons}
	t.forms = &forms{guard: o.Guard, texts: o.Texts, platform: o.Platform, voice: t.voice, commands: t.commands, find: t.find, turns: t.turns, rewording: t.rewording, answers: t.answers}
	t.completion = &completion{catalogs: catalogs, commands: t.commands, declared: Declare(o.Texts, o.Commands, o.Enhance != nil)}
	return t
}

// Reserved returns the names that no workflow may have. enhance says whether the bridge can
// suggest better words.
func Reserved(enhance bool) []string {
	names := []string{
		"start", "help", "queue", "status", "cancel", "settings", "why", "export", "forget", "info", "delete", "remix", "styles", "my", "models", "ban", "unban", "quota",
		"stats", "broadcast", "allow", "disallow",
	}
	if enhance {
		names = append(names, enhanceFlag)
	}
	return names
}

// Selling returns further names that no workflow may have if something is for sale;
// SellingMenu returns those of them that are open to everybody.
func Selling() []string { return append(SellingMenu(), refundCommand) }

// SellingMenu returns the names of the commands that everybody may use if something is for
// sale, in the order in which platforms show them.
func SellingMenu() []string { return []string{"paysupport", "terms"} }

// Menu returns the names of the bridge's own commands that everybody may use, in the order
// in which platforms show them. enhance says whether the bridge can suggest better words.
func Menu(enhance bool) []string {
	own := []string{"my", "models", "queue", "why", "cancel", "status", "settings", "export", "forget", "help"}
	if enhance {
		return append([]string{enhanceFlag}, own...)
	}
	return own
}

// Handle answers one event. On an error, it has to be called again.
func (t *Talk) Handle(ctx context.Context, e platform.Event) error {
	if t.o.Platform(e.Platform) == nil {
		return nil
	}
	if e.Payment != nil {
		return t.shop.payment(ctx, e)
	}
	if e.Kind == platform.Moved {
		return t.Moved(ctx, e.Platform, e.Chat.ID, e.To)
	}
	if e.Kind == platform.Left {
		return errors.Join(t.guests.left(ctx, ChatKey(e.Platform, e.Chat)), t.groups.leave(ctx, e))
	}
	standing, err := t.o.Guard.Standing(ctx, e)
	if err != nil {
		return err
	}
	tn, err := t.turns.of(ctx, e)
	if err != nil {
		return err
	}
	if tn.Kind == platform.Queried {
		return t.queried(ctx, tn, standing)
	}
	switch standing {
	case limits.Banned:
		return t.keepOut(ctx, tn, "")
	case limits.Stranger:
		if tn.Chat.Group && tn.Kind != platform.Pressed {
			return nil // the group did not ask for a bot that is not its own
		}
		text, err := t.admission.knock(ctx, tn)
		if err != nil {
			return err
		}
		return t.keepOut(ctx, tn, tn.say(text, locale.With{"id": tn.who()}))
	case limits.Welcome:
	}
	if flood, tell := t.o.Guard.Flood(e, time.Now()); flood {
		text := ""
		if tell {
			text = tn.say("too_fast", nil)
		}
		return t.keepOut(ctx, tn, text)
	}
	if err := errors.Join(t.guests.meet(ctx, e), t.admission.sit(ctx, tn)); err != nil {
		return err
	}
	err = t.act(ctx, tn)
	t.menus.keep(ctx, tn)
	return err
}

// queried handles words that are being typed. Whom the bridge does not serve it shows nothing,
// nor does it note them: they may never have written to it.
func (t *Talk) queried(ctx context.Context, tn *turn, standing limits.Standing) error {
	if flood, _ := t.o.Guard.Flood(tn.Event, time.Now()); flood || standing != limits.Welcome {
		return nil
	}
	return t.inline.query(ctx, tn)
}

// act does what an event asks for, or shows the terms if its author has yet to accept them.
func (t *Talk) act(ctx context.Context, tn *turn) (err error) {
	e := tn.Event // handling it changes tn.Event
	switch e.Kind {
	case platform.Pressed:
		err = t.buttons.pressed(ctx, tn)
	case platform.Edited:
		err = t.edits.handle(ctx, tn)
	case platform.Said, platform.Left, platform.Moved, platform.Checkout, platform.Paid, platform.Queried:
		err = t.messages.said(ctx, tn)
	}
	if errors.Is(err, errTerms) {
		return t.consent.ask(ctx, tn, e)
	}
	return err
}

// maxMet bounds how many chats are remembered as noted.
const maxMet = 10_000

// keepOut replies to a user whose message is ignored.
func (t *Talk) keepOut(ctx context.Context, tn *turn, text string) error {
	if tn.Kind == platform.Pressed {
		tn.answerText(ctx, text)
		return nil
	}
	if text == "" || !t.hints.may(tn) {
		return nil
	}
	return tn.reply(ctx, text)
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

// Refund refunds what is due until ctx ends.
func (t *Talk) Refund(ctx context.Context) { t.refunds.run(ctx) }

// Form implements [platform.Forms]. If the store does not respond in time, the form is
// empty; whether the words may be used is checked when it is submitted.
func (t *Talk) Form(ctx context.Context, e platform.Event) *platform.Form {
	return t.forms.open(ctx, e)
}

// Suggest implements [platform.Suggest].
func (t *Talk) Suggest(ctx context.Context, command, argument, typed string) []string {
	return t.completion.values(ctx, command, argument, typed)
}
