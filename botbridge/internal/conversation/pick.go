package conversation

import (
	"context"
	"strconv"

	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// pressedOne handles a button about one of several pictures: U makes it large, or sends
// it as a file if there is no command for that; V makes others from it. What it makes
// belongs to whoever pressed the button.
func (t *Talk) pressedOne(ctx context.Context, tn *turn, rec request.Record, verb string) error {
	n, err := strconv.Atoi(verb[min(1, len(verb)):])
	if err != nil || n < 1 || n > len(rec.Outputs) || verb[:1] != request.VerbPick && verb[:1] != request.VerbVaryOne {
		t.o.Outbox.Answer(ctx, tn.p, tn.Press, t.say(tn, "too_old", nil))
		return nil
	}
	t.o.Outbox.Answer(ctx, tn.p, tn.Press, t.say(tn, "on_it", nil))
	out := rec.Outputs[n-1]
	from := []request.Input{{Role: workflow.Image, From: &out.Ref, Owner: rec.Tenant()}}
	w := wish{id: request.IDOf(tn.Key()), replyTo: rec.Message, inputs: from}
	if verb[:1] == request.VerbPick {
		if c := t.byName[t.o.Upscale]; c != nil && rec.Command != c.Name {
			w.args.AsFile = tn.settings.AsFile
			return t.request(ctx, tn, c, w)
		}
		err := t.o.Runner.SendOne(ctx, rec.ID, n-1)
		if err != nil && !mayPass(err) {
			return t.reply(ctx, tn, t.say(tn, "lost", nil))
		}
		return err
	}
	c := t.byName[t.o.Vary]
	if c == nil || c.Takes(workflow.Mask) {
		c = t.byName[rec.Command]
	}
	if c == nil {
		return t.reply(ctx, tn, t.say(tn, "command_gone", nil))
	}
	if c.Name != rec.Command {
		// Only the words mean the same to another workflow.
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
		if !c.Takes(workflow.Image) || c.Takes(workflow.Mask) {
			// No picture can be made from that one: others with the seeds beside it.
			w.inputs = again(rec.Inputs)
			if c.Takes(workflow.Seed) {
				w.args.Seed, w.args.SeedGiven = rec.Args.Seed+uint64(n), true
				if w.args.Seed > c.Spec.MaxSeed || w.args.Seed < rec.Args.Seed {
					w.args.Seed = uint64(n)
				}
			}
		}
	}
	if c.Takes(workflow.Count) {
		w.args.Count = min(4, c.Spec.MaxCount)
	}
	return t.request(ctx, tn, c, w)
}

// again returns inputs that are uploaded again: the hub may have forgotten them.
func again(inputs []request.Input) []request.Input {
	fresh := make([]request.Input, len(inputs))
	for i, in := range inputs {
		in.Stored = ""
		fresh[i] = in
	}
	return fresh
}
