package conversation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// edits handles messages that users change after they were handled.
type edits struct {
	store     *state.Store
	runner    *request.Runner
	logger    *slog.Logger
	commands  *repertoire
	find      *finder
	rewording *rewording
	remixes   *remixes
	asker     *asker
	messages  *messages
}

// handle handles an edited message: it replaces the message's request if that is not over,
// unless the new text is refused.
func (ed *edits) handle(ctx context.Context, tn *turn) error {
	_, _, command := commandOf(tn.Message.Text)
	words := strings.TrimSpace(tn.Message.Text)
	if !command && (words == "" || tn.Chat.Group && !tn.Addressed && tn.Message.ReplyTo == nil) {
		return nil
	}
	id, err := ed.find.noted(ctx, tn, tn.Message.ID)
	if err != nil || id == "" {
		return err
	}
	old, err := ed.runner.Load(ctx, id)
	if errors.Is(err, state.ErrNotFound) {
		return ed.order(ctx, tn, id)
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
	return ed.saidAnew(ctx, tn, ed.askedBy(old), old.Command, old.Inputs)
}

// askedBy returns the question that the message of a request answered, nil for none.
func (ed *edits) askedBy(rec request.Record) (q *question) {
	if len(rec.Answers) > 0 {
		if err := json.Unmarshal(rec.Answers, &q); err != nil {
			ed.logger.Warn("cannot read which question a message answered", "request", rec.ID, "error", err)
		}
	}
	return q
}

// order handles an edited message whose request is not paid for yet. The old order is
// dropped once there is a new one; until then its invoice stays valid.
func (ed *edits) order(ctx context.Context, tn *turn, id string) error {
	var o order
	err := ed.store.People.Held(ctx, orderID(id), &o)
	own := id == request.IDOf(tn.Key())
	switch {
	case errors.Is(err, state.ErrNotFound):
		return ed.offer(ctx, tn, id)
	case err != nil:
		return err
	case o.Record.Said == digest(tn.Message.Text) && !own:
		return nil // Telegram reports changes that nobody has made
	}
	switch err = ed.store.People.Held(ctx, id, new(offer)); {
	case err == nil:
		err = ed.offer(ctx, tn, id)
	case errors.Is(err, state.ErrNotFound):
		if tn.instead, err = ed.find.unfinished(ctx, o.Instead); err == nil {
			err = ed.saidAnew(ctx, tn, ed.askedBy(o.Record), o.Record.Command, o.Record.Inputs)
		}
	}
	if err != nil {
		return err
	}
	if now, err := ed.find.noted(ctx, tn, tn.Message.ID); err != nil || now == id {
		return err
	}
	return ed.store.People.Release(ctx, tn.who(), orderID(id))
}

// offer handles an edited message whose words are not chosen yet.
func (ed *edits) offer(ctx context.Context, tn *turn, id string) error {
	var o offer
	err := ed.store.People.Held(ctx, id, &o)
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
		if err := ed.rewording.decided(ctx, tn, o, choiceEdited); err != nil {
			return err
		}
	}
	if tn.instead, err = ed.find.unfinished(ctx, o.Instead); err != nil {
		return err
	}
	return ed.saidAnew(ctx, tn, o.Answers, o.Command, o.Inputs)
}

// saidAnew handles the new text of a message like the old one: as an answer to the same
// question or picture, or else for the same command with the same inputs. q is the question
// that it answered, nil for none.
func (ed *edits) saidAnew(ctx context.Context, tn *turn, q *question, command string, inputs []request.Input) error {
	if _, _, ok := commandOf(tn.Message.Text); ok {
		return ed.messages.said(ctx, tn)
	}
	tn.rest = strings.TrimSpace(tn.Message.Text)
	if rec, ok, err := ed.remixes.asked(ctx, tn); err != nil {
		return err
	} else if ok {
		return ed.remixes.make(ctx, tn, rec, tn.rest)
	}
	if err := ed.find.findShown(ctx, tn); err != nil {
		return err
	}
	if q != nil {
		if c := ed.commands.byName[q.Command]; c != nil && fill(tn, c, q) {
			return ed.asker.ask(ctx, tn, c)
		}
	}
	c := ed.commands.byName[command]
	if c == nil {
		return ed.messages.said(ctx, tn)
	}
	// Without a number, the words are about the same picture.
	if one, _ := choose(tn.shown, tn.rest, c.Images()); len(one) == 0 && len(tn.Message.Files) == 0 {
		tn.given = again(inputs)
	}
	return ed.asker.ask(ctx, tn, c)
}

// digest returns a short hash of a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
