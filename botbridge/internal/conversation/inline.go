package conversation

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

const (
	// queryWithin is how long people look at what they are typing.
	queryWithin = 8 * time.Second
	// sharePrefix begins what is typed for people who send a picture to another chat.
	sharePrefix = "#"
	// shareStart leads to the private chat and asks for nothing.
	shareStart = "chat"
)

// inline lets people ask from any chat. A picture takes too long for what is shown while they
// type, so they are led to the private chat, where their words count as if they had written them
// there: the limits, the terms and the costs are the same.
type inline struct {
	store    *state.Store
	runner   *request.Runner
	commands *repertoire
	asker    *asker
	handbook *handbook
	logger   *slog.Logger
}

// typed are the last words that somebody typed; Token names them.
type typed struct {
	Token string `json:"token"`
	Words string `json:"words"`
}

// typedID returns the id under which a user's last words are held: one for each, however much
// is typed.
func typedID(tn *turn) string { return request.IDOf("inline/" + tn.who()) }

// query offers something for the words that are being typed.
func (in *inline) query(ctx context.Context, tn *turn) error {
	p, ok := tn.p.(platform.Inliner)
	ctx, cancel := context.WithDeadline(ctx, tn.At.Add(queryWithin))
	defer cancel()
	if !ok || ctx.Err() != nil {
		return nil
	}
	offer, err := in.offer(ctx, tn)
	if err != nil {
		return err
	}
	err = p.Offer(ctx, tn.Press, offer)
	if offer.Shown != nil && errors.Is(err, platform.ErrGone) {
		err = p.Offer(ctx, tn.Press, platform.Offer{Label: tn.say("inline_forward", nil), Start: shareStart})
	}
	if err != nil {
		in.logger.Debug("no offer was made in time", "platform", tn.Platform, "error", err)
	}
	return nil
}

func (in *inline) offer(ctx context.Context, tn *turn) (o platform.Offer, err error) {
	words := strings.TrimSpace(tn.Message.Text)
	if id, ok := strings.CutPrefix(words, sharePrefix); ok && uuid.Validate(id) == nil {
		return in.share(ctx, tn, id)
	}
	if words == "" || in.commands.fromWords(tn) == nil {
		return o, nil
	}
	t := typed{request.IDOf(words), words}
	if err := in.store.People.Hold(ctx, tn.who(), typedID(tn), t); err != nil {
		return o, err
	}
	return platform.Offer{Label: tn.say("inline_make", nil), Start: t.Token}, nil
}

// share offers a picture that somebody got alone, to send it elsewhere. Another's is not offered,
// nor one that is covered: it would not be, there.
func (in *inline) share(ctx context.Context, tn *turn, id string) (o platform.Offer, err error) {
	rec, err := in.runner.Load(ctx, id)
	if err != nil && mayPass(err) {
		return o, err
	}
	if err == nil && sharable(tn, rec) {
		o.Shown = &platform.Original{Chat: rec.Chat.ID, Message: rec.Outputs[0].Message}
	}
	return o, nil
}

// sharable reports whether a user may send the picture of a request to any chat.
func sharable(tn *turn, rec request.Record) bool {
	return tn.p.Limits().Inline && rec.Platform == tn.Platform && rec.User.ID == tn.User.ID && !rec.Chat.Group &&
		rec.Outcome == request.Done && !rec.Cover && len(rec.Outputs) == 1 && rec.Outputs[0].Message != "" &&
		rec.Outputs[0].Media == platform.Photo &&
		!slices.ContainsFunc(rec.Outputs, func(out request.Output) bool { return out.Verdict == request.Covered })
}

// start answers /start. Behind an offer it asks for what was typed, else it says hello.
func (in *inline) start(ctx context.Context, tn *turn) error {
	var t typed
	err := state.ErrNotFound
	if !tn.Chat.Group && tn.rest != "" {
		err = in.store.People.Held(ctx, typedID(tn), &t)
	}
	c := in.commands.fromWords(tn)
	switch {
	case err != nil && !errors.Is(err, state.ErrNotFound):
		return err
	case err != nil, t.Token != tn.rest, c == nil:
		return in.handbook.greet(ctx, tn)
	}
	tn.Message.Text, tn.rest = t.Words, t.Words
	if name, rest, ok := commandOf(t.Words); ok && in.commands.byName[name] != nil {
		c, tn.rest = in.commands.byName[name], rest
	}
	return in.asker.ask(ctx, tn, c)
}
