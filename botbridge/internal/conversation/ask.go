package conversation

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// toldTimeout is how long the next message of a chat waits for the first reply to this one.
const toldTimeout = 30 * time.Second

// asker turns commands into requests, with the pictures that came with them.
type asker struct {
	store     *state.Store
	albumWait time.Duration
	commands  *repertoire
	find      *finder
	consent   *consent
	intake    *intake
	questions *questions
	rewording *rewording
}

// ask turns a command into a request.
func (as *asker) ask(ctx context.Context, tn *turn, c *workflow.Command) error {
	if off, err := tn.off(ctx, c); off || err != nil {
		return err
	}
	as.rewording.cutFlag(tn, c)
	args, err := c.Parse(tn.rest)
	if err != nil {
		return tn.complain(ctx, err)
	}
	files := filesWith(tn)
	if c.Takes(workflow.Mask) {
		if files, err = as.album(ctx, tn); err != nil {
			return err
		}
	}
	if err := as.find.findShown(ctx, tn); err != nil {
		return err
	}
	given, rest := tn.given, tn.rest
	if len(tn.shown) > 0 && c.Takes(workflow.Image) {
		// The hub's originals are used, not the platform's copies or the numbered sheet.
		files = nil
		one, words := choose(tn.shown, args.Prompt)
		args.Prompt = words
		_, rest = choose(tn.shown, rest)
		if has(given, workflow.Image) && c.Takes(workflow.Mask) && len(one) > 0 {
			one = []request.Input{{Role: workflow.Mask, From: one[0].From, Owner: one[0].Owner}}
		}
		given = append(slices.Clone(given), one...)
	}
	inputs, left := inputsOf(files, c, given)
	if needs := lacks(c, args, inputs, tn.shown); needs != "" {
		if _, err := as.intake.settle(ctx, c, args); err != nil {
			return tn.complain(ctx, err)
		}
		return as.questions.put(ctx, tn, c, question{Rest: rest, Inputs: inputs, Choices: tn.shown, Needs: needs})
	}
	if err := as.consent.agreed(ctx, tn); err != nil {
		return err
	}
	if args.Width == 0 && tn.settings.Width > 0 && c.Takes(workflow.Size) {
		args.Width, args.Height = tn.settings.Width, tn.settings.Height
	}
	args.AsFile = args.AsFile || tn.settings.AsFile
	if c.Takes(workflow.Mask) && left > 0 {
		if err := tn.reply(ctx, tn.say("album_rest", nil)); err != nil {
			return err
		}
	}
	w := wish{id: request.IDOf(tn.Key()), args: args, inputs: inputs}
	if task := as.rewording.task(tn, c, args); task != "" {
		err = as.rewording.offer(ctx, tn, c, w, task)
	} else {
		err = as.intake.request(ctx, tn, c, w)
	}
	if err != nil {
		return err
	}
	return as.questions.drop(ctx, tn)
}

// wish describes a new request.
type wish struct {
	id      string
	args    workflow.Args
	inputs  []request.Input
	replyTo string // default: the message of the turn
	shows   string // the words of the picture that this one is made from
	said    string // digest of the message that asked for it; default: the turn's
}

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

// awaitTold waits until the user has been told for the first time, but not for ever.
func awaitTold(ctx context.Context, told <-chan struct{}) {
	timeout := time.NewTimer(toldTimeout)
	defer timeout.Stop()
	select {
	case <-told:
	case <-timeout.C:
	case <-ctx.Done():
	}
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

// driving returns the context that requests run under: it outlives the turn and ends with
// the bridge.
func driving(ctx context.Context) context.Context {
	if bridge, ok := ctx.Value(bridgeKey{}).(context.Context); ok {
		return bridge
	}
	return ctx
}

type bridgeKey struct{}

// WithBridge adds the bridge's context to that of a turn, so that the requests it starts
// end with the bridge.
func WithBridge(ctx, bridge context.Context) context.Context {
	return context.WithValue(ctx, bridgeKey{}, bridge)
}

// messageName returns the name under which a message in the chat of a turn is stored.
func messageName(tn *turn, message string) string {
	return request.MessageName(tn.Platform, tn.Chat.ID, message)
}

// filesWith returns the files of a message, or else of the one that it replies to.
func filesWith(tn *turn) []platform.File {
	if len(tn.Message.Files) == 0 && tn.Message.ReplyTo != nil {
		return tn.Message.ReplyTo.Files
	}
	return tn.Message.Files
}

// usable reports whether a file may be an input: a picture, video or sound, or of unknown
// type.
func usable(f platform.File) bool {
	for _, kind := range []string{"image/", "video/", "audio/"} {
		if strings.HasPrefix(f.Type, kind) {
			return true
		}
	}
	return f.Type == ""
}
