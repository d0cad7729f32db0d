package conversation

import (
	"context"
	"strconv"

	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

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
			w.args.AsFile = tn.settings.AsFile
			return sq.intake.request(ctx, tn, c, w)
		}
		return tn.resent(ctx, sq.runner.SendOne(ctx, rec.ID, n-1))
	}
	return sq.vary(ctx, tn, rec, n, "")
}

// again returns inputs to upload again, as the hub may have forgotten them.
func again(inputs []request.Input) []request.Input {
	fresh := make([]request.Input, len(inputs))
	for i, in := range inputs {
		in.Stored = ""
		fresh[i] = in
	}
	return fresh
}
