package conversation

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// unrelated returns the handler of a button that is not about a request; nil for the
// others.
func (bt *buttons) unrelated(verb string) func(ctx context.Context, tn *turn, rest string) error {
	switch verb {
	case verbSet:
		return bt.panel.pressed
	case verbGroup:
		return bt.groupPanel.pressed
	case verbBetter, verbOwn, verbNone, verbEdit:
		return func(ctx context.Context, tn *turn, rest string) error {
			return bt.rewording.pressed(ctx, tn, verb, rest)
		}
	case verbLetIn, verbKeepOut:
		return func(ctx context.Context, tn *turn, rest string) error {
			return bt.admission.pressed(ctx, tn, verb, rest)
		}
	case verbRecipe:
		return bt.recipes.pressed
	case verbMy:
		return bt.gallery.pressedMy
	case verbGet:
		return bt.gallery.pressedGet
	case verbForget:
		return bt.privacy.pressedForget
	case verbAccept:
		return bt.accept
	case verbAnswer:
		return bt.answers.pressed
	}
	return nil
}

// A message is sent first and noted right after, so a press may come in between.
const (
	notePatience = 2 * time.Second
	notePause    = 50 * time.Millisecond
	maxNotePause = 10 * time.Second
)

// owns reports whether a press came from a message that has the button, as far as is known.
// If not, it answers the press.
func (bt *buttons) owns(ctx context.Context, tn *turn, verb, rest string) (bool, error) {
	if verb == verbGet {
		return true, nil // it may name any request, and changes no message
	}
	pauses, deadline := retry.New(notePause, notePatience/4), time.Now().Add(notePatience)
	for {
		of, foreign, err := bt.foreign(ctx, tn, rest)
		switch {
		case err != nil || foreign:
			return false, err
		case of != "", !tn.Chat.Group, tn.Filled != nil:
			// In a private chat there is nobody else's message. A form has no message.
			return true, nil
		}
		if bt.unrelated(verb) == nil {
			// If the request is at fault, handling the press says so.
			if rec, err := bt.find.requestOf(ctx, tn, rest); err != nil || mayShow(rec, verb, tn.Message.ID) {
				return true, nil
			}
		}
		if time.Now().After(deadline) {
			return false, bt.stray(ctx, tn)
		}
		if !pauses.Wait(ctx) {
			return false, ctx.Err()
		}
	}
}

// foreign returns what the message of a press is about, as noted. If its buttons are about
// something else than the data, it answers the press and returns true: otherwise a user
// could have someone else's picture deleted or overwritten.
func (bt *buttons) foreign(ctx context.Context, tn *turn, rest string) (of string, foreign bool, err error) {
	of, err = bt.find.noted(ctx, tn, tn.Message.ID)
	if err != nil {
		return "", false, err
	}
	if named, _, _ := strings.Cut(rest, ":"); of == "" || named == of {
		return of, false, nil
	}
	return of, true, bt.stray(ctx, tn)
}

// stray answers a press from a message that does not have the button, as far as is known.
func (bt *buttons) stray(ctx context.Context, tn *turn) error {
	bt.logger.Warn("a button was pressed under a message it does not belong to", "platform", tn.Platform)
	tn.answer(ctx, "too_old")
	return nil
}

// mayShow reports whether a message without a note may have a request's button. A request
// knows its messages, except those that were being sent when the bridge was killed. A
// message without buttons has no note either, and a forged press must not overwrite it.
func mayShow(rec request.Record, verb, message string) bool {
	if slices.Contains(messagesOf(rec), message) {
		return true
	}
	lost := rec.Tellings
	if rec.Status != "" {
		lost--
	}
	return lost > 0 && (verb == request.VerbStatus || verb == request.VerbCancel)
}
