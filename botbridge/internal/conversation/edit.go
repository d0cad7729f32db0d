package conversation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// edited handles an edited message: it replaces the message's request if that is not over,
// unless the new text is refused.
func (t *Talk) edited(ctx context.Context, tn *turn) error {
	_, _, command := commandOf(tn.Message.Text)
	words := strings.TrimSpace(tn.Message.Text)
	if !command && (words == "" || tn.Chat.Group && !tn.Addressed && tn.Message.ReplyTo == nil) {
		return nil
	}
	id, err := t.find.noted(ctx, tn, tn.Message.ID)
	if err != nil || id == "" {
		return err
	}
	old, err := t.o.Runner.Load(ctx, id)
	if errors.Is(err, state.ErrNotFound) {
		return t.editedOrder(ctx, tn, id)
	}
	if err != nil {
		return err
	}
	// Telegram also reports edits that nobody made, such as a new link preview. An event
	// that is handled again finds its own request.
	own := old.ID == request.IDOf(tn.Key())
	if old.Phase == request.Ended || old.Phase == request.Over || old.Said == digest(tn.Message.Text) && !own {
		return nil
	}
	if !own {
		tn.instead = &old
	}
	return t.saidAnew(ctx, tn, t.askedBy(old), old.Command, old.Inputs)
}

// askedBy returns the question that the message of a request answered, nil for none.
func (t *Talk) askedBy(rec request.Record) (q *question) {
	if len(rec.Answers) > 0 {
		if err := json.Unmarshal(rec.Answers, &q); err != nil {
			t.o.Logger.Warn("cannot read which question a message answered", "request", rec.ID, "error", err)
		}
	}
	return q
}

// editedOrder handles an edited message whose request is not paid for yet. The old order is
// dropped once there is a new one; until then its invoice stays valid.
func (t *Talk) editedOrder(ctx context.Context, tn *turn, id string) error {
	var o order
	err := t.o.Store.Held(ctx, orderID(id), &o)
	own := id == request.IDOf(tn.Key())
	switch {
	case errors.Is(err, state.ErrNotFound):
		return t.editedOffer(ctx, tn, id)
	case err != nil:
		return err
	case o.Record.Said == digest(tn.Message.Text) && !own:
		return nil // Telegram reports changes that nobody has made
	}
	switch err = t.o.Store.Held(ctx, id, new(offer)); {
	case err == nil:
		err = t.editedOffer(ctx, tn, id)
	case errors.Is(err, state.ErrNotFound):
		if tn.instead, err = t.find.unfinished(ctx, o.Instead); err == nil {
			err = t.saidAnew(ctx, tn, t.askedBy(o.Record), o.Record.Command, o.Record.Inputs)
		}
	}
	if err != nil {
		return err
	}
	if now, err := t.find.noted(ctx, tn, tn.Message.ID); err != nil || now == id {
		return err
	}
	return t.o.Store.Release(ctx, tn.who(), orderID(id))
}

// editedOffer handles an edited message whose words are not chosen yet.
func (t *Talk) editedOffer(ctx context.Context, tn *turn, id string) error {
	var o offer
	err := t.o.Store.Held(ctx, id, &o)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	own := o.ID == request.IDOf(tn.Key())
	if o.Said == digest(tn.Message.Text) && !own {
		return nil // Telegram reports changes that nobody has made
	}
	if o.Choice == "" && !own {
		if err := t.rewording.decided(ctx, tn, o, choiceEdited); err != nil {
			return err
		}
	}
	if tn.instead, err = t.find.unfinished(ctx, o.Instead); err != nil {
		return err
	}
	return t.saidAnew(ctx, tn, o.Answers, o.Command, o.Inputs)
}

// saidAnew handles the new text of a message like the old one: as an answer to the same
// question or picture, or else for the same command with the same inputs. q is the question
// that it answered, nil for none.
func (t *Talk) saidAnew(ctx context.Context, tn *turn, q *question, command string, inputs []request.Input) error {
	if _, _, ok := commandOf(tn.Message.Text); ok {
		return t.messages.said(ctx, tn)
	}
	tn.rest = strings.TrimSpace(tn.Message.Text)
	if rec, ok, err := t.remixes.asked(ctx, tn); err != nil {
		return err
	} else if ok {
		return t.remixes.make(ctx, tn, rec, tn.rest)
	}
	if err := t.find.findShown(ctx, tn); err != nil {
		return err
	}
	if q != nil {
		if c := t.commands.byName[q.Command]; c != nil && fill(tn, c, q) {
			return t.asker.ask(ctx, tn, c)
		}
	}
	c := t.commands.byName[command]
	if c == nil {
		return t.messages.said(ctx, tn)
	}
	// Without a number, the words are about the same picture.
	if one, _ := choose(tn.shown, tn.rest); len(one) == 0 && len(tn.Message.Files) == 0 {
		tn.given = again(inputs)
	}
	return t.asker.ask(ctx, tn, c)
}

// digest returns a short hash of a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
