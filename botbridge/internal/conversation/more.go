package conversation

import (
	"context"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// The menu of a picture is one message that says what made it and has the buttons that
// are needed less often. What they ask is asked in the same message.

// pressedMenu handles a button of the menu of a picture, and the one that opens it. It
// returns false for another button.
func (t *Talk) pressedMenu(ctx context.Context, tn *turn, rec request.Record, verb string) (bool, error) {
	act := t.menuAct(verb)
	if act == nil {
		return false, nil
	}
	if !mayRead(tn, rec) {
		t.o.Outbox.Answer(ctx, tn.p, tn.Press, t.say(tn, "not_yours", nil))
		return true, nil
	}
	return true, act(ctx, tn, rec)
}

// menuAct returns what a button of the menu does, nil for a button of something else.
func (t *Talk) menuAct(verb string) func(context.Context, *turn, request.Record) error {
	switch verb {
	case request.VerbMore:
		return t.openMenu
	case request.VerbWorkflow:
		return t.pressedWorkflow
	}
	return nil
}

// mayRead reports whether somebody may know the words of a request: everybody in the group
// where its picture is shown, but nobody else where its author talks to the bot alone.
func mayRead(tn *turn, rec request.Record) bool {
	return rec.Chat.Group || rec.User.ID == tn.User.ID
}

// menu is the menu of a picture, below a text.
func (t *Talk) menu(tn *turn, rec request.Record, text string) platform.Post {
	return platform.Post{
		Text: text, ReplyTo: tn.under, Private: true, Press: tn.Press,
		Buttons: request.Buttons(t.o.Texts, tn.language, rec.ID, request.VerbWorkflow),
	}
}

// openMenu answers the button under a picture.
func (t *Talk) openMenu(ctx context.Context, tn *turn, rec request.Record) error {
	t.o.Outbox.Answer(ctx, tn.p, tn.Press, "")
	return t.post(ctx, tn, t.menu(tn, rec, t.aboutPicture(ctx, tn, rec)))
}

// pictureReplied returns the request of the picture that a message answers. If there is
// none, its author has been told what to do.
func (t *Talk) pictureReplied(ctx context.Context, tn *turn, command string) (rec request.Record, ok bool, err error) {
	id, err := t.replied(ctx, tn)
	if err != nil {
		return rec, false, err
	}
	if id != "" {
		rec, err = t.requestOf(ctx, tn, id)
		if mayPass(err) {
			return rec, false, err
		}
		ok = err == nil && mayRead(tn, rec)
	}
	if !ok {
		return rec, false, t.reply(ctx, tn, t.say(tn, "answer_picture", locale.With{"command": command}))
	}
	tn.under = tn.Message.ID
	return rec, true, nil
}
