package conversation

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// unrelated returns what handles a button that is not about a request; nil for one that is.
func (t *Talk) unrelated(verb string) func(ctx context.Context, tn *turn, rest string) error {
	switch verb {
	case verbSet:
		return t.pressedSetting
	case verbGroup:
		return t.pressedGroup
	case verbBetter, verbOwn, verbNone, verbEdit:
		return func(ctx context.Context, tn *turn, rest string) error { return t.pressedOffer(ctx, tn, verb, rest) }
	case verbMy:
		return t.pressedMy
	case verbGet:
		return t.pressedGet
	case verbForget:
		return t.pressedForget
	case verbAccept:
		return t.pressedAccept
	case verbAnswer:
		return t.pressedAnswer
	}
	return nil
}

// A note is stored right after its message was sent: a press may be a little faster.
const (
	notePatience = 2 * time.Second
	notePause    = 50 * time.Millisecond
	maxNotePause = 10 * time.Second
)

// owns reports whether the message of a press has its button, as far as is known, and
// answers the press if not.
func (t *Talk) owns(ctx context.Context, tn *turn, verb, rest string) (bool, error) {
	if verb == verbGet {
		return true, nil // it may be of any request, and changes no message
	}
	pauses, deadline := retry.New(notePause, notePatience/4), time.Now().Add(notePatience)
	for {
		of, foreign, err := t.foreign(ctx, tn, rest)
		switch {
		case err != nil || foreign:
			return false, err
		case of != "", !tn.Chat.Group, tn.Filled != nil:
			// Alone with the bridge, nobody has anybody else's message. A form is no message.
			return true, nil
		}
		if t.unrelated(verb) == nil {
			// What is wrong with its request, the press itself says.
			if rec, err := t.requestOf(ctx, tn, rest); err != nil || mayShow(rec, verb, tn.Message.ID) {
				return true, nil
			}
		}
		if time.Now().After(deadline) {
			return false, t.stray(ctx, tn)
		}
		if !pauses.Wait(ctx) {
			return false, ctx.Err()
		}
	}
}

// foreign returns what the message of a press is noted to be about. It answers a press on
// a message whose buttons are about something else than what the data names, and returns
// true: somebody could have another's picture deleted or written over.
func (t *Talk) foreign(ctx context.Context, tn *turn, rest string) (of string, foreign bool, err error) {
	of, err = t.noted(ctx, tn, tn.Message.ID)
	if err != nil {
		return "", false, err
	}
	if named, _, _ := strings.Cut(rest, ":"); of == "" || named == of {
		return of, false, nil
	}
	return of, true, t.stray(ctx, tn)
}

// stray answers a press on a message that does not have this button, as far as is known.
func (t *Talk) stray(ctx context.Context, tn *turn) error {
	t.o.Logger.Warn("a button was pressed under a message that it is not of", "platform", tn.Platform)
	t.o.Outbox.Answer(ctx, tn.p, tn.Press, t.say(tn, "too_old", nil))
	return nil
}

// mayShow reports whether a message of which there is no note, or no longer, may have the
// button of a request: the request knows its messages, but for those that were being sent
// when the bridge ended. A message without buttons has no note either, and a forged press
// must not write over it.
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
