package conversation

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// buttons handles presses, once it is clear that the button belongs to its message.
type buttons struct {
	outbox      *outbox.Outbox
	runner      *request.Runner
	guard       *limits.Guard
	logger      *slog.Logger
	find        *finder
	privacy     *privacy
	gallery     *gallery
	rewording   *rewording
	sequels     *sequels
	groupPanel  *groupPanel
	panel       *settingsPanel
	accept      func(ctx context.Context, tn *turn, id string) error // of the terms
	admission   *admission
	recipes     *recipes
	answers     *answers
	menuButtons *menuButtons
}

// pressed handles a button. Its data comes from the user's app, so it is trusted only if it
// names a request of this chat.
func (bt *buttons) pressed(ctx context.Context, tn *turn) error {
	verb, rest, _ := strings.Cut(tn.Data, ":")
	if ours, err := bt.owns(ctx, tn, verb, rest); err != nil || !ours {
		return err
	}
	if press := bt.unrelated(verb); press != nil {
		return press(ctx, tn, rest)
	}
	rec, err := bt.find.requestOf(ctx, tn, rest)
	if err != nil {
		if mayPass(err) {
			return err
		}
		tn.answer(ctx, "too_old")
		return nil
	}
	pressed := tn.Message.ID
	tn.Message.ID, tn.under = rec.Message, pressed
	if done, err := bt.menuButtons.pressed(ctx, tn, rec, verb); done {
		return err
	}
	known := rec.Status != "" || rec.Phase == request.Over // otherwise it may still be being sent
	if (verb == request.VerbStatus || verb == request.VerbCancel) && known && !slices.Contains(messagesOf(rec), pressed) {
		// A message from before a restart that the bridge lost track of.
		if err := bt.outbox.Delete(ctx, tn.p, tn.Chat, pressed); mayPass(err) {
			return err
		}
	}
	switch verb {
	case request.VerbStatus:
		text, ok := bt.runner.Words(rec.ID)
		if !ok {
			text = tn.say("it_is_over", nil)
		}
		tn.answerText(ctx, text)
		return nil
	case request.VerbCancel:
		switch {
		case rec.User.ID != tn.User.ID && !bt.guard.Admin(tn.Event):
			tn.answer(ctx, "not_yours")
		case bt.runner.Cancel(rec.ID):
			tn.answer(ctx, "cancelling")
		default:
			tn.answer(ctx, "it_is_over")
		}
		return nil
	case request.VerbAgain, request.VerbVary, request.VerbUpscale:
		tn.answer(ctx, "on_it")
		return bt.sequels.pressedMore(ctx, tn, rec, verb)
	case request.VerbFile, request.VerbResend:
		tn.answer(ctx, "on_it")
		return tn.resent(ctx, bt.runner.SendAgain(ctx, rec.ID, verb == request.VerbFile))
	}
	return bt.sequels.pressedOne(ctx, tn, rec, verb)
}

// errForged means that a button does not belong where it was pressed.
var errForged = errors.New("the button is of another chat")
