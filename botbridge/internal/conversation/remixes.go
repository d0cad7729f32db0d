package conversation

import (
	"context"
	"errors"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// remixKind records, by message, which request it asks for new words for.
const remixKind = "remix"

// remixes makes pictures again with other words.
type remixes struct {
	store     *state.Store
	runner    *request.Runner
	commands  *repertoire
	find      *finder
	intake    *intake
	rewording *rewording
	menu      *pictureMenu
	recipes   *recipes
}

// remix answers /remix WORDS: it makes the picture that is replied to again with other
// words, and asks for them if there are none.
func (rx *remixes) remix(ctx context.Context, tn *turn) error {
	if made, err := rx.recipes.remix(ctx, tn); made || err != nil {
		return err
	}
	rec, ok, err := rx.menu.replied(ctx, tn, "remix")
	if !ok {
		return err
	}
	if tn.rest == "" {
		return rx.askWords(ctx, tn, rec)
	}
	return rx.make(ctx, tn, rec, tn.rest)
}

// pressed asks for the words, unless a form has brought them.
func (rx *remixes) pressed(ctx context.Context, tn *turn, rec request.Record) error {
	if words := strings.TrimSpace(tn.Filled[fieldPrompt]); words != "" {
		tn.answer(ctx, "on_it")
		return rx.make(ctx, tn, rec, words)
	}
	tn.answerText(ctx, "")
	return rx.askWords(ctx, tn, rec)
}

// askWords asks for new words. A reply makes the picture again.
func (rx *remixes) askWords(ctx context.Context, tn *turn, rec request.Record) error {
	if c := rx.commands.byName[rec.Command]; c == nil || !c.Takes(workflow.Prompt) {
		return tn.reply(ctx, tn.say("not_taken_prompt", locale.With{"command": rec.Command}))
	}
	ids, err := tn.send(ctx, platform.Post{
		Text: tn.say("remix_ask", locale.With{"words": short(rec.Args.Prompt)}), ReplyTo: tn.Message.ID, Asks: true,
	})
	if err != nil || len(ids) == 0 {
		return err
	}
	if err := rx.store.Put(ctx, remixKind, messageName(tn, ids[0]), rec.ID, request.MessageKeep); err != nil {
		return err
	}
	return rx.runner.NoteCopies(ctx, rec.ID, ids...)
}

// asked returns the request that a message has the new words for; false if it has
// none.
func (rx *remixes) asked(ctx context.Context, tn *turn) (rec request.Record, ok bool, err error) {
	if tn.Message.ReplyTo == nil || strings.TrimSpace(tn.Message.Text) == "" {
		return rec, false, nil
	}
	var id string
	err = rx.store.Get(ctx, remixKind, messageName(tn, tn.Message.ReplyTo.ID), &id)
	if errors.Is(err, state.ErrNotFound) {
		return rec, false, nil
	}
	if err != nil {
		return rec, false, err
	}
	rec, err = rx.find.requestOf(ctx, tn, id)
	if err != nil && !mayPass(err) {
		return rec, false, nil // the request is forgotten
	}
	return rec, err == nil && mayRead(tn, rec), err
}

// make makes a picture again with new words and the same seed and settings, except for
// those that the words name.
func (rx *remixes) make(ctx context.Context, tn *turn, rec request.Record, words string) error {
	c := rx.commands.byName[rec.Command]
	if c == nil {
		return tn.reply(ctx, tn.say("command_gone", nil))
	}
	tn.rest = words
	rx.rewording.cutFlag(tn, c)
	fresh, err := c.Parse(tn.rest)
	if err != nil {
		return tn.complain(ctx, err)
	}
	args := rec.Args.With(fresh)
	if negative, ok := tn.Filled[fieldNegative]; ok && fresh.Negative == "" {
		args.Negative = strings.TrimSpace(negative) // also if it was emptied
		if err := workflow.TooLong(args.Prompt + args.Negative); err != nil {
			return tn.complain(ctx, err)
		}
	}
	args.Styles = c.Having(rec.Args.Styles)
	if len(fresh.Styles) > 0 {
		args.Styles = fresh.Styles
	}
	args.SeedGiven = c.Takes(workflow.Seed)
	inputs, _ := inputsOf(tn.Message.Files, c, nil)
	if len(inputs) == 0 {
		inputs = again(rec.Inputs)
	}
	w := wish{id: request.IDOf(tn.Key()), args: args, inputs: inputs}
	if task := rx.rewording.task(tn, c, args); task != "" && fresh.Prompt != "" {
		return rx.rewording.offer(ctx, tn, c, w, task)
	}
	return rx.intake.request(ctx, tn, c, w)
}
