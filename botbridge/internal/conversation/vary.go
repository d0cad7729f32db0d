package conversation

import (
	"context"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// How much a subtle and a strong variation change a picture, where a workflow takes one.
const (
	subtleStrength = 0.35
	strongStrength = 0.75
)

// vary makes variations of picture n, from 1. how is "", VerbSubtle or VerbStrong.
func (sq *sequels) vary(ctx context.Context, tn *turn, rec request.Record, n int, how string) error {
	c, w := sq.variation(rec, n, how)
	if c == nil {
		return tn.reply(ctx, tn.say("command_gone", nil))
	}
	w.id, w.replyTo = request.IDOf(tn.Key()), rec.Message
	if c.Takes(workflow.Count) {
		w.args.Count = min(4, c.Spec.MaxCount)
	}
	return sq.intake.request(ctx, tn, c, w)
}

// variation returns what makes variations of picture n: a command that takes a picture,
// with the strength, or else the request's own with the next seeds, or a new one for strong
// variations. The command is nil if it is no longer offered.
func (sq *sequels) variation(rec request.Record, n int, how string) (*workflow.Command, wish) {
	own := sq.commands.byName[rec.Command]
	c := sq.commands.byName[sq.commands.vary]
	if c == nil || c.Takes(workflow.Mask) || how != "" && !c.Takes(workflow.Strength) {
		c = own
	}
	if c == nil {
		return nil, wish{}
	}
	w := wish{inputs: []request.Input{{Role: workflow.Image, From: &rec.Outputs[n-1].Ref, Owner: rec.Tenant()}}, shows: rec.Words()}
	if c.Name != rec.Command {
		// Only the words carry over to another workflow.
		w.args = workflow.Args{AsFile: rec.Args.AsFile}
		if c.Takes(workflow.Prompt) {
			w.args.Prompt = rec.Args.Prompt
		}
		if c.Takes(workflow.Negative) {
			w.args.Negative = rec.Args.Negative
		}
	} else {
		w.args = rec.Args
		w.args.SeedGiven = false
	}
	w.args.Styles = c.Having(rec.Args.Styles)
	takes := c.Takes(workflow.Image) && !c.Takes(workflow.Mask)
	switch {
	case takes && how == "":
	case takes && c.Takes(workflow.Strength):
		w.args.Strength = map[string]float64{request.VerbSubtle: subtleStrength, request.VerbStrong: strongStrength}[how]
	default:
		// It cannot start from the picture, so vary the seed: the next ones, or a new one.
		w.inputs = again(rec.Inputs)
		if c.Takes(workflow.Seed) && how != request.VerbStrong {
			w.args.Seed, w.args.SeedGiven = rec.Args.Seed+uint64(n), true
			if w.args.Seed > c.Spec.MaxSeed || w.args.Seed < rec.Args.Seed {
				w.args.Seed = uint64(n)
			}
		}
	}
	return c, w
}

// varies reports whether a request's pictures have subtle and strong variations.
func (rep *repertoire) varies(rec request.Record) bool {
	c := rep.byName[rec.Command]
	if c == nil {
		return false
	}
	better := rep.byName[rep.vary]
	return c.Takes(workflow.Seed) || better != nil && better.Takes(workflow.Strength) && !better.Takes(workflow.Mask)
}

// pressedNumber handles a menu button for one picture; for 0 it asks which one.
func (mb *menuButtons) pressedNumber(ctx context.Context, tn *turn, rec request.Record, verb string, n int) error {
	if n > len(rec.Outputs) {
		tn.answer(ctx, "too_old")
		return nil
	}
	switch {
	case n == 0:
		tn.answerText(ctx, "")
		post := mb.menu.plain(tn, rec, tn.say("which_"+verb, locale.With{"n": len(rec.Outputs)}))
		post.Buttons = append(mb.menu.numbers(rec, verb), tn.buttons(rec.ID, request.VerbBack)...)
		return mb.menu.turn(ctx, tn, post)
	case verb == request.VerbStar:
		return mb.gallery.star(ctx, tn, rec, n)
	}
	tn.answer(ctx, "on_it")
	return mb.sequels.vary(ctx, tn, rec, n, verb)
}
