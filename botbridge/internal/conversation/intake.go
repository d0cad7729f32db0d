package conversation

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// intake checks what users wish for, and makes requests of it.
type intake struct {
	store    *state.Store
	runner   *request.Runner
	guard    *limits.Guard
	logger   *slog.Logger
	catalogs *catalogs
	shop     *shop
	consent  *consent
}

// request checks a wish, stores it and starts it. It returns once the user has been told,
// so that replies come in the order of the messages.
func (ik *intake) request(ctx context.Context, tn *turn, c *workflow.Command, w wish) error {
	if off, err := tn.off(ctx, c); off || err != nil {
		return err
	}
	if err := ik.consent.agreed(ctx, tn); err != nil {
		return err
	}
	args, err := ik.settle(ctx, c, w.args)
	if err != nil {
		return tn.complain(ctx, err)
	}
	if !ik.guard.Takes(ctx, args.Words()) {
		return tn.reply(ctx, tn.say("words_refused", nil))
	}
	share, metered, err := ik.guard.Share(ctx, tn.Event)
	if err != nil {
		return err
	}
	rec := request.NewRecord(w.id)
	rec.Platform, rec.Chat, rec.User, rec.Language = tn.Platform, tn.Chat, tn.User, tn.language
	rec.Message, rec.Command, rec.Args, rec.Inputs = tn.Message.ID, c.Name, args, w.inputs
	if !c.Takes(workflow.Prompt) {
		rec.Shows = w.shows
	}
	rec.Previews, rec.Metered = tn.settings.Previews, metered
	if w.replyTo != "" {
		rec.Message = w.replyTo
	}
	if !metered {
		rec.Price = c.Price * int64(max(1, args.Count))
	}
	if rec.Said = w.said; w.said == "" {
		rec.Said = digest(tn.Message.Text)
	}
	if tn.answers != nil {
		if rec.Answers, err = json.Marshal(tn.answers); err != nil {
			return err
		}
	}
	var told <-chan struct{}
	ask := state.Ask{Who: tn.who(), Price: rec.Price, Metered: metered, Quota: share, Waiting: ik.guard.Waiting(tn.Event)}
	if tn.instead != nil {
		ask.Instead, ask.Back = tn.instead.ID, tn.instead.Price
	}
	ik.bound(tn, &rec, &ask)
	price := ik.shop.price(tn, c, args)
	verdict, err := ik.shop.create(ctx, &rec, ask, price)
	if err != nil {
		return err
	}
	switch verdict {
	case state.OverQuota, state.OverCap:
		if price > 0 {
			return ik.shop.sell(ctx, tn, c, rec, price, share > 0)
		}
		if verdict == state.OverCap {
			return tn.reply(ctx, tn.say("group_cap_used", locale.With{"share": ask.Cap}))
		}
		return tn.reply(ctx, tn.say("over_quota", locale.With{"share": share}))
	case state.Busy:
		return tn.reply(ctx, tn.say("busy", locale.With{"max": ik.guard.Waiting(tn.Event)}))
	case state.Exists:
		// The event is handled again: the bridge was killed on the way, or Redis stored the
		// request but its reply was lost.
		if told, err = ik.runner.Continue(driving(ctx), rec.ID); err != nil {
			return err
		}
	case state.Taken:
		told = ik.runner.Begin(driving(ctx), rec)
	}
	if tn.instead != nil {
		ik.runner.Cancel(tn.instead.ID)
	}
	if tn.Kind != platform.Pressed {
		if err := ik.store.Put(ctx, request.MessageKind, messageName(tn, tn.Message.ID), rec.ID, request.MessageKeep); err != nil {
			ik.logger.Warn("cannot note which request a message asked for", "error", err)
		}
	}
	awaitTold(ctx, told)
	return nil
}

// settle checks the arguments against the command and the fleet, and fills in the rest.
func (ik *intake) settle(ctx context.Context, c *workflow.Command, args workflow.Args) (workflow.Args, error) {
	if len(args.Set) > 0 {
		var err error
		catalog := ik.catalogs.of(ctx, c.Classes(slices.Collect(maps.Keys(args.Set))...))
		if args, err = c.Adjust(args, catalog); err != nil {
			return args, err
		}
	}
	return c.Settle(args)
}

// bound adds the group's limit to what is asked of the state, and records the group in the
// request. Operators have no limit.
func (ik *intake) bound(tn *turn, rec *request.Record, ask *state.Ask) {
	ask.Group = countedIn(tn)
	rec.Counted, rec.Cover = ask.Group, tn.group.Cover && ask.Group != "" || rec.Args.Spoiler ||
		slices.ContainsFunc(rec.Inputs, func(in request.Input) bool { return in.Cover })
	if ask.Group == "" || ik.guard.Admin(tn.Event) {
		return
	}
	ask.Cap = tn.group.daily(ask.Metered)
	if tn.instead != nil && tn.instead.Counted == ask.Group {
		ask.BackThere = tn.instead.Price
	}
}
