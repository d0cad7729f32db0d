package conversation

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// removals removes pictures from chats and from the store.
type removals struct {
	store  *state.Store
	outbox *outbox.Outbox
	guard  *limits.Guard
	logger *slog.Logger
	menu   *pictureMenu
}

// ask answers /delete: it asks whether the picture that is replied to should go.
func (rm *removals) ask(ctx context.Context, tn *turn) error {
	rec, ok, err := rm.menu.replied(ctx, tn, "delete")
	if !ok {
		return err
	}
	if key, err := rm.keepsPicture(ctx, tn, rec); err != nil || key != "" {
		if err != nil {
			return err
		}
		return tn.reply(ctx, tn.say(key, nil))
	}
	return rm.menu.post(ctx, tn, rec, rm.askDelete(tn, rec))
}

// askDelete asks for confirmation, as a removal cannot be undone.
func (rm *removals) askDelete(tn *turn, rec request.Record) platform.Post {
	return platform.Post{
		Text: tn.say("delete_ask", nil), ReplyTo: tn.under, Private: true, Press: tn.Press,
		Buttons: tn.buttons(rec.ID, request.VerbDeleteNow, request.VerbBack),
	}
}

// keepsPicture returns the key of the text that says why somebody may not remove a picture
// now, "" if they may: the requester, the group's moderators and the operators can.
func (rm *removals) keepsPicture(ctx context.Context, tn *turn, rec request.Record) (string, error) {
	allowed := rec.User.ID == tn.User.ID || rm.guard.Admin(tn.Event)
	if p, ok := tn.p.(platform.Moderated); ok && !allowed && tn.Chat.Group {
		var err error
		if allowed, err = p.Moderates(ctx, tn.Chat, tn.User.ID); err != nil && ctx.Err() != nil {
			return "", err
		}
	}
	switch {
	case !allowed:
		return "not_yours", nil
	case rec.Phase != request.Over:
		return "delete_later", nil
	}
	return "", nil
}

// pressedDelete asks for confirmation in the menu.
func (rm *removals) pressedDelete(ctx context.Context, tn *turn, rec request.Record) error {
	key, err := rm.keepsPicture(ctx, tn, rec)
	if err != nil {
		return err
	}
	if key != "" {
		tn.answer(ctx, key)
		return nil
	}
	tn.answerText(ctx, "")
	return rm.menu.turn(ctx, tn, rm.askDelete(tn, rec))
}

// pressedDeleteNow removes a picture. It may run again at any point, because the request is
// forgotten last.
func (rm *removals) pressedDeleteNow(ctx context.Context, tn *turn, rec request.Record) error {
	key, err := rm.keepsPicture(ctx, tn, rec)
	if err != nil {
		return err
	}
	if key != "" {
		tn.answer(ctx, key)
		return nil
	}
	left := 0
	messages := slices.DeleteFunc(messagesOf(rec), func(message string) bool { return message == tn.under })
	for _, message := range messages {
		switch err := rm.outbox.Delete(ctx, tn.p, rec.Chat, message); {
		case err == nil:
		case errors.Is(err, platform.ErrRefused), errors.Is(err, platform.ErrForbidden):
			left++ // it is too old, or the bot may not remove it
		case mayPass(err):
			return err
		default:
			rm.logger.Warn("a picture cannot be removed", "request", rec.ID, "error", err)
			tn.answer(ctx, "delete_failed")
			return nil
		}
	}
	if left > 0 {
		tn.answerText(ctx, "")
		err = rm.menu.turn(ctx, tn, platform.Post{Text: tn.say("delete_left", locale.With{"left": left, "n": len(messages)})})
	} else {
		tn.answer(ctx, "deleted")
		if err = rm.outbox.Delete(ctx, tn.p, tn.Chat, tn.under); !mayPass(err) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	for _, message := range messages {
		if err := rm.store.Put(ctx, request.MessageKind, request.MessageName(rec.Platform, rec.Chat.ID, message), nil, 0); err != nil {
			return err
		}
	}
	_, err = rm.store.Requests.Forget(ctx, rec.ID)
	return err
}

// messagesOf returns the messages that show a request: its pictures, including all of an
// album, its texts, its status, files that were sent later, and what was said about it.
func messagesOf(rec request.Record) (list []string) {
	seen := map[string]bool{"": true}
	add := func(message string) {
		if !seen[message] {
			seen[message] = true
			list = append(list, message)
		}
	}
	for _, out := range rec.Outputs {
		add(out.Message)
	}
	for _, text := range rec.Texts {
		add(text.Message)
	}
	add(rec.Status)
	for _, message := range rec.Copies {
		add(message)
	}
	return list
}
