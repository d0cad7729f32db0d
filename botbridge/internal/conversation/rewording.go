package conversation

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/botbridge/internal/enhance"
	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// Enhance rewords and translates prompts.
type Enhance struct {
	Client *enhance.Client
	// PerDay is how often a user may ask for better words in a day.
	PerDay int
	// Translate also suggests English words for a prompt in another script.
	Translate bool
}

// offer is a request that waits for its author to choose the words. It has the id of the
// request. Older and newer bridges read its JSON.
type offer struct {
	ID       string        `json:"id"`
	Platform string        `json:"platform"`
	Chat     platform.Chat `json:"chat"`
	User     platform.User `json:"user"`
	// Message is the user's message, Said a digest of its text, and Post the bridge's
	// message with the buttons.
	Message string `json:"message"`
	Said    string `json:"said"`
	Post    string `json:"post,omitempty"`

	Command string          `json:"command"`
	Args    workflow.Args   `json:"args"`
	Inputs  []request.Input `json:"inputs,omitempty"`
	// Instead is the request that it replaces, Answers the question that the message
	// answered, if any.
	Instead string    `json:"instead,omitempty"`
	Answers *question `json:"answers,omitempty"`

	Task enhance.Task `json:"task"`
	// Prompt and Negative are the suggested words; Prompt is empty if there are none.
	Prompt   string `json:"prompt,omitempty"`
	Negative string `json:"negative,omitempty"`
	// Choice is the button that was pressed, "" while the offer is open.
	Choice string `json:"choice,omitempty"`
}

// The verbs of the buttons under an offer: the suggested words, the user's own, or cancel.
const (
	verbBetter = "ew"
	verbOwn    = "eo"
	verbNone   = "ex"
	// verbEdit uses the words as edited in a form.
	verbEdit = "ee"
	// choiceEdited means that the user edited the message instead.
	choiceEdited = "edited"
)

// enhanceFlag asks for better words.
const enhanceFlag = "enhance"

// rewording offers users other words for their prompts.
type rewording struct {
	store    *state.Store
	outbox   *outbox.Outbox
	runner   *request.Runner
	guard    *limits.Guard
	enhance  *Enhance
	logger   *slog.Logger
	commands *repertoire
	find     *finder
	consent  *consent
	intake   *intake
}

// task returns what to do with the words of a message before they are used, "" for nothing.
func (rw *rewording) task(tn *turn, c *workflow.Command, args workflow.Args) enhance.Task {
	switch e := rw.enhance; {
	case e == nil, args.Prompt == "", !c.Takes(workflow.Prompt):
	case tn.better, tn.settings.Better:
		return enhance.Improve
	case e.Translate && !tn.settings.NoTranslate && (enhance.Foreign(args.Prompt) || enhance.Foreign(args.Negative)):
		return enhance.Translate
	}
	return ""
}

// cutFlag removes --enhance from the arguments. Phones may turn the two dashes into a long
// one.
func (rw *rewording) cutFlag(tn *turn, c *workflow.Command) {
	if rw.enhance == nil || c.Knows(enhanceFlag) {
		return
	}
	words := strings.Fields(tn.rest)
	for i, word := range words {
		for _, dashes := range []string{"--", "—", "–"} {
			if word == dashes+enhanceFlag {
				tn.rest, tn.better = strings.Join(append(words[:i:i], words[i+1:]...), " "), true
				rw.cutFlag(tn, c)
				return
			}
		}
	}
}

// better answers /enhance WORDS: it suggests better words for the default command, or else
// for one that makes a picture from words.
func (as *asker) better(ctx context.Context, tn *turn) error {
	c := as.commands.usual(tn)
	for _, other := range as.commands.list {
		if c == nil && other.Takes(workflow.Prompt) && !other.Takes(workflow.Image) {
			c = other
		}
	}
	if c == nil {
		return tn.reply(ctx, tn.say("unknown_command", nil))
	}
	tn.better = true
	return as.ask(ctx, tn, c)
}

// offer suggests other words for a wish. Nothing starts before its author has chosen.
func (rw *rewording) offer(ctx context.Context, tn *turn, c *workflow.Command, w wish, task enhance.Task) error {
	if err := rw.consent.agreed(ctx, tn); err != nil {
		return err
	}
	var o offer
	err := rw.store.People.Held(ctx, w.id, &o)
	switch {
	case err == nil && o.Post != "":
		return nil // shown before the bridge was killed
	case err != nil && !errors.Is(err, state.ErrNotFound):
		return err
	}
	if _, err := rw.intake.settle(ctx, c, w.args); err != nil {
		return tn.complain(ctx, err)
	}
	if !rw.guard.Takes(ctx, w.args.Words()) {
		return tn.reply(ctx, tn.say("words_refused", nil))
	}
	o = offer{
		ID: w.id, Platform: tn.Platform, Chat: tn.Chat, User: tn.User, Message: tn.Message.ID, Said: digest(tn.Message.Text),
		Command: c.Name, Args: w.args, Inputs: w.inputs, Answers: tn.answers, Task: task,
	}
	if tn.instead != nil {
		o.Instead = tn.instead.ID
	}
	problem, err := rw.better(ctx, tn, &o)
	switch {
	case err != nil:
		return err
	case problem == "" && o.Prompt == o.Args.Prompt && o.Negative == o.Args.Negative:
		return rw.intake.request(ctx, tn, c, w) // nothing to choose: the words are the same
	}
	if err := rw.store.People.Hold(ctx, tn.who(), o.ID, o); err != nil {
		return err
	}
	if tn.Kind != platform.Pressed { // otherwise the message belongs to an older request
		if err := rw.store.Put(ctx, request.MessageKind, messageName(tn, o.Message), o.ID, request.MessageKeep); err != nil {
			return err
		}
	}
	post := platform.Post{ReplyTo: o.Message, Text: tn.say(problem, locale.With{"max": rw.enhance.PerDay}), Press: tn.Press}
	verbs := []string{verbOwn, verbNone}
	if problem == "" {
		post.Text, verbs = rw.offerText(tn, o)+"\n\n"+tn.say("offer_ask", nil), []string{verbBetter, verbOwn, verbNone}
	}
	if tn.p.Limits().Forms {
		verbs = slices.Insert(verbs, len(verbs)-1, verbEdit)
	}
	post.Buttons = tn.buttons(o.ID, verbs...)
	ids, err := tn.sendOn(ctx, post)
	if err != nil || len(ids) == 0 {
		if mayPass(err) {
			return err
		}
		return nil
	}
	o.Post = ids[0]
	return rw.store.People.Hold(ctx, tn.who(), o.ID, o)
}

// offerText returns the text with the suggested words.
func (rw *rewording) offerText(tn *turn, o offer) string {
	return tn.say("offer_"+string(o.Task), wordsWith(o.Prompt, o.Negative))
}

// better fetches better words. problem is the key of the text that says why there are none.
func (rw *rewording) better(ctx context.Context, tn *turn, o *offer) (problem string, err error) {
	e := rw.enhance
	if !rw.guard.Admin(tn.Event) {
		ok, err := rw.store.Usage.Count(ctx, "enhance", tn.who(), o.ID, e.PerDay)
		if err != nil {
			return "", err
		}
		if !ok {
			return "offer_share", nil
		}
	}
	prompt, negative := o.Args.Prompt, o.Args.Negative
	if o.Task == enhance.Improve || enhance.Foreign(prompt) {
		if prompt, err = rw.otherWords(ctx, tn, o.Task, prompt); err != nil {
			return rw.noWords(ctx, err)
		}
	}
	if negative != "" && enhance.Foreign(negative) && e.Translate && !tn.settings.NoTranslate {
		if negative, err = rw.otherWords(ctx, tn, enhance.Translate, negative); err != nil {
			return rw.noWords(ctx, err)
		}
	}
	args := o.Args
	args.Prompt, args.Negative = prompt, negative
	shown := *o
	shown.Prompt, shown.Negative = prompt, negative
	switch {
	case workflow.TooLong(prompt+negative) != nil,
		platform.Units(rw.offerText(tn, shown)+tn.say("offer_ask", nil))+2 > tn.p.Limits().Text:
		return "offer_odd", nil // never use words that could not be shown in full
	case !rw.guard.Takes(ctx, args.Words()):
		return "offer_refused", nil
	}
	o.Prompt, o.Negative = prompt, negative
	return "", nil
}

// otherWords asks the endpoint, and meanwhile shows in the chat that the bridge is at work.
func (rw *rewording) otherWords(ctx context.Context, tn *turn, task enhance.Task, words string) (string, error) {
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			rw.outbox.Work(tn.p, tn.Chat, "")
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return rw.enhance.Client.Ask(ctx, task, words)
}

// noWords returns the key of the text that tells the user about an error.
func (rw *rewording) noWords(ctx context.Context, err error) (problem string, fatal error) {
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	rw.logger.Warn("cannot get better words for a message", "error", err)
	switch {
	case errors.Is(err, enhance.ErrRefused):
		return "offer_refused", nil
	case errors.Is(err, enhance.ErrOdd):
		return "offer_odd", nil
	}
	return "offer_away", nil
}

// pressed handles a button under an offer. The data may be forged, so only the offer's
// author in its own chat is served.
func (rw *rewording) pressed(ctx context.Context, tn *turn, verb, id string) error {
	if _, err := uuid.Parse(id); err != nil || len(id) != 36 {
		tn.answer(ctx, "too_old")
		return nil
	}
	var o offer
	err := rw.store.People.Held(ctx, id, &o)
	switch {
	case errors.Is(err, state.ErrNotFound):
		tn.answer(ctx, "too_old")
		return nil
	case err != nil:
		return err
	case o.Platform != tn.Platform || o.Chat.ID != tn.Chat.ID:
		rw.logger.Warn("a button was pressed in a chat it does not belong to", "platform", tn.Platform)
		tn.answer(ctx, "too_old")
		return nil
	case o.User.ID != tn.User.ID:
		tn.answer(ctx, "not_yours")
		return nil
	case o.Choice != "":
		tn.answer(ctx, "it_is_over")
		return nil
	case verb == verbBetter && o.Prompt == "":
		tn.answer(ctx, "too_old") // no such button was shown
		return nil
	}
	if o.Post == "" {
		o.Post = tn.Message.ID // the bridge was killed before it could record that
	}
	if verb == verbEdit && strings.TrimSpace(tn.Filled[fieldPrompt]) == "" {
		tn.answer(ctx, "oops") // the form could not be shown
		return nil
	}
	if verb == verbNone {
		tn.answer(ctx, "cancelled")
		return rw.decided(ctx, tn, o, verb)
	}
	tn.answer(ctx, "on_it")
	c := rw.commands.byName[o.Command]
	if c == nil {
		return tn.reply(ctx, tn.say("command_gone", nil))
	}
	if tn.instead, err = rw.find.unfinished(ctx, o.Instead); err != nil {
		return err
	}
	w := wish{id: o.ID, args: o.Args, inputs: o.Inputs, said: o.Said}
	switch verb {
	case verbBetter:
		w.args.Prompt, w.args.Negative = o.Prompt, o.Negative
	case verbEdit:
		if w.args, err = filledWords(tn, w.args); err != nil {
			return tn.complain(ctx, err)
		}
		o.Prompt, o.Negative = w.args.Prompt, w.args.Negative
	}
	tn.Message.ID, tn.answers = o.Message, o.Answers
	if err := rw.intake.request(ctx, tn, c, w); err != nil {
		return err
	}
	// If the request was refused, such as for too many at once, the user may try again.
	if _, err := rw.runner.Load(ctx, o.ID); err != nil {
		if mayPass(err) {
			return err
		}
		return nil
	}
	return rw.decided(ctx, tn, o, verb)
}

// decided records what became of an offer and removes its buttons.
func (rw *rewording) decided(ctx context.Context, tn *turn, o offer, choice string) error {
	o.Choice = choice
	if err := rw.store.People.Hold(ctx, tn.who(), o.ID, o); err != nil {
		return err
	}
	if o.Post == "" {
		return nil
	}
	text := tn.say("offer_done_"+choice, wordsWith(o.Prompt, o.Negative))
	if choice == verbBetter {
		text = rw.offerText(tn, o)
	}
	return tn.edit(ctx, o.Post, platform.Post{Text: text})
}
