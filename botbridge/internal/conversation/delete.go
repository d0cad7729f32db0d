package conversation

import (
	"context"
	"errors"
	"slices"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// remove answers /delete: it asks whether the picture that is replied to should go.
func (t *Talk) remove(ctx context.Context, tn *turn) error {
	rec, ok, err := t.menu.replied(ctx, tn, "delete")
	if !ok {
		return err
	}
	if key, err := t.keepsPicture(ctx, tn, rec); err != nil || key != "" {
		if err != nil {
			return err
		}
		return tn.reply(ctx, tn.say(key, nil))
	}
	return t.menu.post(ctx, tn, rec, t.askDelete(tn, rec))
}

// askDelete asks for confirmation, as a removal cannot be undone.
func (t *Talk) askDelete(tn *turn, rec request.Record) platform.Post {
	return platform.Post{
		Text: tn.say("delete_ask", nil), ReplyTo: tn.under, Private: true, Press: tn.Press,
		Buttons: tn.buttons(rec.ID, request.VerbDeleteNow, request.VerbBack),
	}
}

// keepsPicture returns the key of the text that says why somebody may not remove a picture
// now, "" if they may: the requester, the group's moderators and the operators can.
func (t *Talk) keepsPicture(ctx context.Context, tn *turn, rec request.Record) (string, error) {
	allowed := rec.User.ID == tn.User.ID || t.o.Guard.Admin(tn.Event)
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
func (t *Talk) pressedDelete(ctx context.Context, tn *turn, rec request.Record) error {
	key, err := t.keepsPicture(ctx, tn, rec)
	if err != nil {
		return err
	}
	if key != "" {
		tn.answer(ctx, key)
		return nil
	}
	tn.answerText(ctx, "")
	return t.menu.turn(ctx, tn, t.askDelete(tn, rec))
}

// pressedDeleteNow removes a picture. It may run again at any point, because the request is
// forgotten last.
func (t *Talk) pressedDeleteNow(ctx context.Context, tn *turn, rec request.Record) error {
	key, err := t.keepsPicture(ctx, tn, rec)
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
		switch err := t.o.Outbox.Delete(ctx, tn.p, rec.Chat, message); {
		case err == nil:
		case errors.Is(err, platform.ErrRefused), errors.Is(err, platform.ErrForbidden):
			left++ // it is too old, or the bot may not remove it
		case mayPass(err):
			return err
		default:
			t.o.Logger.Warn("a picture cannot be removed", "request", rec.ID, "error", err)
			tn.answer(ctx, "delete_failed")
			return nil
		}
	}
	if left > 0 {
		tn.answerText(ctx, "")
		err = t.menu.turn(ctx, tn, platform.Post{Text: tn.say("delete_left", locale.With{"left": left, "n": len(messages)})})
	} else {
		tn.answer(ctx, "deleted")
		if err = t.o.Outbox.Delete(ctx, tn.p, tn.Chat, tn.under); !mayPass(err) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	for _, message := range messages {
		if err := t.o.Store.Put(ctx, request.MessageKind, request.MessageName(rec.Platform, rec.Chat.ID, message), nil, 0); err != nil {
			return err
		}
	}
	_, err = t.o.Store.Forget(ctx, rec.ID)
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
