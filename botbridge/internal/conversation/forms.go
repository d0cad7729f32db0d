package conversation

import (
	"context"
	"errors"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// The fields of a form for words. Forms that are open when the bridge is upgraded use these
// names.
const (
	fieldPrompt   = "prompt"
	fieldNegative = "negative"
)

// errNoForm means that a press opens no form; handling the press says why.
var errNoForm = errors.New("conversation: there is no form")

// forms opens forms with the words that can be changed there.
type forms struct {
	guard     *limits.Guard
	texts     *locale.Bundle
	platform  func(name string) platform.Platform
	voice     *voice
	commands  *repertoire
	find      *finder
	turns     *turns
	rewording *rewording
	answers   *answers
}

// open returns a form for changing a picture's words (also
// after a bare /remix) or those that were suggested, or for answering a question. It
// returns nil where there is none.
func (fm *forms) open(ctx context.Context, e platform.Event) *platform.Form {
	p := fm.platform(e.Platform)
	if p == nil {
		return nil
	}
	tn := &turn{Event: e, voice: fm.voice, p: p, language: fm.texts.Match(e.User.Language)}
	verb, id, _ := strings.Cut(e.Data, ":")
	if name, rest, ok := commandOf(e.Message.Text); ok && e.Kind == platform.Said && name == "remix" && rest == "" {
		var err error
		if id, err = fm.find.replied(ctx, tn); err != nil || id == "" {
			return nil
		}
		verb = request.VerbRemix
	} else if e.Kind == platform.Pressed && verb == verbAnswer {
		return fm.answers.form(ctx, tn, id)
	} else if e.Kind != platform.Pressed || verb != request.VerbRemix && verb != verbEdit {
		return nil
	}
	c, args, err := fm.wordsOf(ctx, tn, verb, id)
	switch {
	case err == nil && (c == nil || !c.Takes(workflow.Prompt)):
		return nil
	case err != nil && ctx.Err() == nil && !mayPass(err):
		return nil
	}
	form := &platform.Form{Title: tn.say("button_"+verb, nil), Data: request.ButtonData(verb, id), Fields: []platform.Field{
		{Name: fieldPrompt, Label: tn.say("argument_prompt", nil), Value: args.Prompt, Long: true, Required: true},
	}}
	if c != nil && c.Takes(workflow.Negative) {
		form.Fields = append(form.Fields, platform.Field{Name: fieldNegative, Label: tn.say("argument_negative", nil), Value: args.Negative, Long: true})
	}
	return form
}

// wordsOf returns the words for a form and their command, if the user may read them.
func (fm *forms) wordsOf(ctx context.Context, tn *turn, verb, id string) (c *workflow.Command, args workflow.Args, err error) {
	standing, err := fm.guard.Standing(ctx, tn.Event)
	if err == nil && standing != limits.Welcome {
		err = errNoForm
	}
	if err != nil {
		return nil, args, err
	}
	known, err := fm.turns.of(ctx, tn.Event)
	if err != nil {
		return nil, args, err
	}
	*tn = *known
	of, err := fm.find.noted(ctx, tn, tn.Message.ID)
	if err == nil && of != "" && of != id {
		err = errNoForm // see foreign
	}
	if err != nil {
		return nil, args, err
	}
	if verb == verbEdit {
		return fm.rewording.wordsOffered(ctx, tn, id)
	}
	rec, err := fm.find.requestOf(ctx, tn, id)
	if err == nil && !mayRead(tn, rec) {
		err = errNoForm
	}
	if err != nil {
		return nil, args, err
	}
	return fm.commands.byName[rec.Command], rec.Args, nil
}

// wordsOffered returns the suggested words of an offer, or the author's own if there are
// none.
func (rw *rewording) wordsOffered(ctx context.Context, tn *turn, id string) (c *workflow.Command, args workflow.Args, err error) {
	var o offer
	err = rw.store.People.Held(ctx, id, &o)
	if err == nil && (o.Platform != tn.Platform || o.Chat.ID != tn.Chat.ID || o.User.ID != tn.User.ID || o.Choice != "") {
		err = errNoForm
	}
	if err != nil {
		return nil, args, err
	}
	args = o.Args
	if o.Prompt != "" {
		args.Prompt, args.Negative = o.Prompt, o.Negative
	}
	return rw.commands.byName[o.Command], args, nil
}

// filledWords replaces the words of a request with those of a form.
func filledWords(tn *turn, args workflow.Args) (workflow.Args, error) {
	args.Prompt = strings.TrimSpace(tn.Filled[fieldPrompt])
	if negative, ok := tn.Filled[fieldNegative]; ok {
		args.Negative = strings.TrimSpace(negative) // also if it was emptied
	}
	return args, workflow.TooLong(args.Prompt + args.Negative)
}

// wordsWith returns the prompt, with the negative one if any, as a value for a text.
func wordsWith(prompt, negative string) locale.With {
	if negative != "" {
		prompt += "\n--no " + negative
	}
	return locale.With{"words": prompt}
}
