package conversation

import (
	"context"
	"fmt"
	"path"
	"strconv"

	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// sequels makes new requests from the pictures of old ones.
type sequels struct {
	runner   *request.Runner
	commands *repertoire
	intake   *intake
}

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
	if c == nil || !c.FromOne() || how != "" && !c.Takes(workflow.Strength) {
		c = own
	}
	if c == nil {
		return nil, wish{}
	}
	w := wish{inputs: []request.Input{{Role: workflow.Image, From: &rec.Outputs[n-1].Ref, Owner: rec.Tenant()}}, shows: rec.Words()}
	if c.Name != rec.Command {
		// Only the words carry over to another workflow.
		w.args = workflow.Args{AsFile: rec.Args.AsFile, Spoiler: rec.Args.Spoiler}
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
	takes := c.FromOne()
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

// pressedMore makes new requests from an old one, for whoever pressed the button.
func (sq *sequels) pressedMore(ctx context.Context, tn *turn, rec request.Record, verb string) error {
	if verb == request.VerbUpscale {
		return sq.upscale(ctx, tn, rec)
	}
	c := sq.commands.byName[rec.Command]
	if c == nil {
		return tn.reply(ctx, tn.say("command_gone", nil))
	}
	args := rec.Args
	args.Styles = c.Having(args.Styles)
	args.SeedGiven = false // the same seed would make the same picture
	if verb == request.VerbVary {
		if c.Takes(workflow.Count) {
			args.Count = min(4, c.Spec.MaxCount)
		}
	}
	return sq.intake.request(ctx, tn, c, wish{id: request.IDOf(tn.Key()), args: args, inputs: again(rec.Inputs), shows: rec.Shows, replyTo: rec.Message})
}

// upscale makes a request for each picture of an old one.
func (sq *sequels) upscale(ctx context.Context, tn *turn, rec request.Record) error {
	c := sq.commands.byName[sq.commands.upscale]
	if c == nil {
		return tn.reply(ctx, tn.say("command_gone", nil))
	}
	for i, out := range rec.Outputs {
		if path.Ext(out.Ref.Filename) == "" {
			continue
		}
		ref := out.Ref
		err := sq.intake.request(ctx, tn, c, wish{
			id:      request.IDOf(fmt.Sprintf("%s/%d", tn.Key(), i)),
			args:    workflow.Args{AsFile: tn.settings.AsFile, Spoiler: rec.Args.Spoiler},
			inputs:  []request.Input{{Role: workflow.Image, From: &ref, Owner: rec.Tenant()}},
			shows:   rec.Words(),
			replyTo: rec.Message,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pressedOne handles a button for one of several pictures: U upscales it, or sends it as a
// file if no command does that; V makes variations of it. The results belong to whoever
// pressed the button.
func (sq *sequels) pressedOne(ctx context.Context, tn *turn, rec request.Record, verb string) error {
	n, err := strconv.Atoi(verb[min(1, len(verb)):])
	if err != nil || n < 1 || n > len(rec.Outputs) || verb[:1] != request.VerbPick && verb[:1] != request.VerbVaryOne {
		tn.answer(ctx, "too_old")
		return nil
	}
	tn.answer(ctx, "on_it")
	out := rec.Outputs[n-1]
	if verb[:1] == request.VerbPick {
		from := []request.Input{{Role: workflow.Image, From: &out.Ref, Owner: rec.Tenant()}}
		w := wish{id: request.IDOf(tn.Key()), replyTo: rec.Message, inputs: from, shows: rec.Words()}
		if c := sq.commands.byName[sq.commands.upscale]; c != nil && rec.Command != c.Name {
			w.args.AsFile, w.args.Spoiler = tn.settings.AsFile, rec.Args.Spoiler
			return sq.intake.request(ctx, tn, c, w)
		}
		return tn.resent(ctx, sq.runner.SendOne(ctx, rec.ID, n-1))
	}
	return sq.vary(ctx, tn, rec, n, "")
}
