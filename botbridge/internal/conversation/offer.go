package conversation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/botbridge/internal/enhance"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// Enhance is how words are improved and translated.
type Enhance struct {
	Client *enhance.Client
	// PerDay is how often a user may ask for other words per day.
	PerDay int
	// Translate offers words in English for those in another script.
	Translate bool
}

// offer is a request that waits until its author has chosen the words. Its id is that of
// the request. Older and newer bridges read its JSON.
type offer struct {
	ID       string        `json:"id"`
	Platform string        `json:"platform"`
	Chat     platform.Chat `json:"chat"`
	User     platform.User `json:"user"`
	// Message is the user's message, Said a digest of its text, Post the bridge's message
	// with the buttons.
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
	// Prompt and Negative are the other words; without a Prompt there are none.
	Prompt   string `json:"prompt,omitempty"`
	Negative string `json:"negative,omitempty"`
	// Choice is what was pressed, once that is done.
	Choice string `json:"choice,omitempty"`
}

// The verbs of the buttons under an offer: the other words, one's own, neither.
const (
	verbBetter = "ew"
	verbOwn    = "eo"
	verbNone   = "ex"
	// verbEdit uses what its author has made of the words in a form.
	verbEdit = "ee"
	// choiceEdited means that the message was changed meanwhile.
	choiceEdited = "edited"
)

// enhanceFlag asks for other words.
const enhanceFlag = "enhance"

// task says what to do with the words of a message before they are used, "" for nothing.
func (t *Talk) task(tn *turn, c *workflow.Command, args workflow.Args) enhance.Task {
	switch e := t.o.Enhance; {
	case e == nil, args.Prompt == "", !c.Takes(workflow.Prompt):
	case tn.better, tn.settings.Better:
		return enhance.Improve
	case e.Translate && !tn.settings.NoTranslate && (enhance.Foreign(args.Prompt) || enhance.Foreign(args.Negative)):
		return enhance.Translate
	}
	return ""
}

// cutFlag removes --enhance from what follows a command. A phone joins the dashes.
func (t *Talk) cutFlag(tn *turn, c *workflow.Command) {
	if t.o.Enhance == nil || c.Knows(enhanceFlag) {
		return
	}
	words := strings.Fields(tn.rest)
	for i, word := range words {
		for _, dashes := range []string{"--", "—", "–"} {
			if word == dashes+enhanceFlag {
				tn.rest, tn.better = strings.Join(append(words[:i:i], words[i+1:]...), " "), true
				t.cutFlag(tn, c)
				return
			}
		}
	}
}

// enhance answers /enhance WORDS: other words for the command that takes words without
// one.
func (t *Talk) enhance(ctx context.Context, tn *turn) error {
	c := t.usual(tn)
	for _, other := range t.o.Commands {
		if c == nil && other.Takes(workflow.Prompt) && !other.Takes(workflow.Image) {
			c = other
		}
	}
	if c == nil {
		return t.reply(ctx, tn, t.say(tn, "unknown_command", nil))
	}
	tn.better = true
	return t.ask(ctx, tn, c)
}

// offer shows other words for a wish. Nothing starts before its author has chosen.
func (t *Talk) offer(ctx context.Context, tn *turn, c *workflow.Command, w wish, task enhance.Task) error {
	if err := t.agreed(ctx, tn); err != nil {
		return err
	}
	var o offer
	err := t.o.Store.Held(ctx, w.id, &o)
	switch {
	case err == nil && o.Post != "":
		return nil // the bridge ended after it had shown them
	case err != nil && !errors.Is(err, state.ErrNotFound):
		return err
	}
	if _, err := t.settle(ctx, c, w.args); err != nil {
		return t.complain(ctx, tn, err)
	}
	if !t.o.Guard.Takes(ctx, w.args.Words()) {
		return t.reply(ctx, tn, t.say(tn, "words_refused", nil))
	}
	o = offer{
		ID: w.id, Platform: tn.Platform, Chat: tn.Chat, User: tn.User, Message: tn.Message.ID, Said: digest(tn.Message.Text),
		Command: c.Name, Args: w.args, Inputs: w.inputs, Answers: tn.answers, Task: task,
	}
	if tn.instead != nil {
		o.Instead = tn.instead.ID
	}
	problem, err := t.better(ctx, tn, &o)
	switch {
	case err != nil:
		return err
	case problem == "" && o.Prompt == o.Args.Prompt && o.Negative == o.Args.Negative:
		return t.request(ctx, tn, c, w) // there is nothing to choose
	}
	if err := t.o.Store.Hold(ctx, tn.who(), o.ID, o); err != nil {
		return err
	}
	if tn.Kind != platform.Pressed { // else the message is an older request's
		if err := t.o.Store.Put(ctx, request.MessageKind, messageName(tn, o.Message), o.ID, request.MessageKeep); err != nil {
			return err
		}
	}
	post := platform.Post{ReplyTo: o.Message, Text: t.say(tn, problem, locale.With{"max": t.o.Enhance.PerDay}), Press: tn.Press}
	verbs := []string{verbOwn, verbNone}
	if problem == "" {
		post.Text, verbs = t.offerText(tn, o)+"\n\n"+t.say(tn, "offer_ask", nil), []string{verbBetter, verbOwn, verbNone}
	}
	if tn.p.Limits().Forms {
		verbs = slices.Insert(verbs, len(verbs)-1, verbEdit)
	}
	post.Buttons = request.Buttons(t.o.Texts, tn.language, o.ID, verbs...)
	ids, err := t.sendOn(ctx, tn, post)
	if err != nil || len(ids) == 0 {
		if mayPass(err) {
			return err
		}
		return nil
	}
	o.Post = ids[0]
	return t.o.Store.Hold(ctx, tn.who(), o.ID, o)
}

// offerText shows the other words of an offer.
func (t *Talk) offerText(tn *turn, o offer) string {
	return t.say(tn, "offer_"+string(o.Task), wordsWith(o.Prompt, o.Negative))
}

// better asks for other words. problem is the key of the text that says why there are
// none.
func (t *Talk) better(ctx context.Context, tn *turn, o *offer) (problem string, err error) {
	e := t.o.Enhance
	if !t.o.Guard.Admin(tn.Event) {
		ok, err := t.o.Store.Count(ctx, "enhance", tn.who(), o.ID, e.PerDay)
		if err != nil {
			return "", err
		}
		if !ok {
			return "offer_share", nil
		}
	}
	prompt, negative := o.Args.Prompt, o.Args.Negative
	if o.Task == enhance.Improve || enhance.Foreign(prompt) {
		if prompt, err = t.otherWords(ctx, tn, o.Task, prompt); err != nil {
			return t.noWords(ctx, err)
		}
	}
	if negative != "" && enhance.Foreign(negative) && e.Translate && !tn.settings.NoTranslate {
		if negative, err = t.otherWords(ctx, tn, enhance.Translate, negative); err != nil {
			return t.noWords(ctx, err)
		}
	}
	args := o.Args
	args.Prompt, args.Negative = prompt, negative
	shown := *o
	shown.Prompt, shown.Negative = prompt, negative
	switch {
	case workflow.TooLong(prompt+negative) != nil,
		locale.Units(t.offerText(tn, shown)+t.say(tn, "offer_ask", nil))+2 > tn.p.Limits().Text:
		return "offer_odd", nil // words that cannot be shown are not used
	case !t.o.Guard.Takes(ctx, args.Words()):
		return "offer_refused", nil
	}
	o.Prompt, o.Negative = prompt, negative
	return "", nil
}

// otherWords asks the endpoint, and shows meanwhile that the bridge is at work.
func (t *Talk) otherWords(ctx context.Context, tn *turn, task enhance.Task, words string) (string, error) {
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			t.o.Outbox.Work(tn.p, tn.Chat, "")
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return t.o.Enhance.Client.Ask(ctx, task, words)
}

// noWords says what an error means for the user.
func (t *Talk) noWords(ctx context.Context, err error) (problem string, fatal error) {
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	t.o.Logger.Warn("there are no other words for a message", "error", err)
	switch {
	case errors.Is(err, enhance.ErrRefused):
		return "offer_refused", nil
	case errors.Is(err, enhance.ErrOdd):
		return "offer_odd", nil
	}
	return "offer_away", nil
}

// pressedOffer handles a choice of words. Data may be forged: an offer is known only to
// its author, in its chat.
func (t *Talk) pressedOffer(ctx context.Context, tn *turn, verb, id string) error {
	answer := func(key string) { t.o.Outbox.Answer(ctx, tn.p, tn.Press, t.say(tn, key, nil)) }
	if _, err := uuid.Parse(id); err != nil || len(id) != 36 {
		answer("too_old")
		return nil
	}
	var o offer
	err := t.o.Store.Held(ctx, id, &o)
	switch {
	case errors.Is(err, state.ErrNotFound):
		answer("too_old")
		return nil
	case err != nil:
		return err
	case o.Platform != tn.Platform || o.Chat.ID != tn.Chat.ID:
		t.o.Logger.Warn("a button was pressed in a chat that it is not of", "platform", tn.Platform)
		answer("too_old")
		return nil
	case o.User.ID != tn.User.ID:
		answer("not_yours")
		return nil
	case o.Choice != "":
		answer("it_is_over")
		return nil
	case verb == verbBetter && o.Prompt == "":
		answer("too_old") // nobody offered that
		return nil
	}
	if o.Post == "" {
		o.Post = tn.Message.ID // the bridge ended before it had noted that
	}
	if verb == verbEdit && strings.TrimSpace(tn.Filled[fieldPrompt]) == "" {
		answer("oops") // no form could be shown
		return nil
	}
	if verb == verbNone {
		answer("cancelled")
		return t.decided(ctx, tn, o, verb)
	}
	answer("on_it")
	c := t.byName[o.Command]
	if c == nil {
		return t.reply(ctx, tn, t.say(tn, "command_gone", nil))
	}
	if tn.instead, err = t.unfinished(ctx, o.Instead); err != nil {
		return err
	}
	w := wish{id: o.ID, args: o.Args, inputs: o.Inputs, said: o.Said}
	switch verb {
	case verbBetter:
		w.args.Prompt, w.args.Negative = o.Prompt, o.Negative
	case verbEdit:
		if w.args, err = filledWords(tn, w.args); err != nil {
			return t.complain(ctx, tn, err)
		}
		o.Prompt, o.Negative = w.args.Prompt, w.args.Negative
	}
	tn.Message.ID, tn.answers = o.Message, o.Answers
	if err := t.request(ctx, tn, c, w); err != nil {
		return err
	}
	// What was refused, perhaps for too many requests, may be tried again.
	if _, err := t.o.Runner.Load(ctx, o.ID); err != nil {
		if mayPass(err) {
			return err
		}
		return nil
	}
	return t.decided(ctx, tn, o, verb)
}

// decided notes what became of an offer and takes its buttons away.
func (t *Talk) decided(ctx context.Context, tn *turn, o offer, choice string) error {
	o.Choice = choice
	if err := t.o.Store.Hold(ctx, tn.who(), o.ID, o); err != nil {
		return err
	}
	if o.Post == "" {
		return nil
	}
	text := t.say(tn, "offer_done_"+choice, wordsWith(o.Prompt, o.Negative))
	if choice == verbBetter {
		text = t.offerText(tn, o)
	}
	if err := t.o.Outbox.Edit(ctx, tn.p, tn.Chat, o.Post, platform.Post{Text: text}); mayPass(err) {
		return err
	}
	return nil
}

// unfinished returns a request that may still be replaced, nil if there is none.
func (t *Talk) unfinished(ctx context.Context, id string) (*request.Record, error) {
	if id == "" {
		return nil, nil
	}
	rec, err := t.o.Runner.Load(ctx, id)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case rec.Phase == request.Ended || rec.Phase == request.Over:
		return nil, nil
	}
	return &rec, nil
}
