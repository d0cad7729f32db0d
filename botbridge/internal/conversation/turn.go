package conversation

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// voice is what every turn needs for speaking.
type voice struct {
	texts  *locale.Bundle
	outbox *outbox.Outbox
	store  *state.Store // knows what the buttons of a message are about
	logger *slog.Logger
}

// turn is one event and its author. What the bridge says in reply goes through it, so it
// is in the author's language and in the event's chat.
type turn struct {
	platform.Event
	voice    *voice
	p        platform.Platform
	settings Settings
	group    GroupSettings
	// own is the author's language; language is the one to reply in.
	own, language string
	// rest is what follows the command.
	rest string
	// under is the message whose button was pressed, or the one that replies to a picture.
	under string
	// shown are the bridge's pictures that the message replies to; given are inputs from
	// earlier messages.
	shown, given []request.Input
	// answers is the question that the message answers, if any.
	answers *question
	// instead is the request that an edited message replaces, if any.
	instead *request.Record
	// better means that the author wants better words.
	better bool
	// agreed means that the author has accepted the terms.
	agreed bool
}

func (tn *turn) who() string { return request.Who(tn.Platform, tn.User.ID) }

// speak chooses the language: the group's, if its moderators have set one.
func (tn *turn) speak() {
	texts := tn.voice.texts
	tn.own = texts.Match(tn.User.Language)
	if tn.settings.Language != "" {
		tn.own = texts.Match(tn.settings.Language)
	}
	tn.language = tn.own
	if tn.group.Language != "" {
		tn.language = texts.Match(tn.group.Language)
	}
}

// say returns a text in the language of the turn.
func (tn *turn) say(key string, with locale.With) string {
	return tn.voice.texts.Say(tn.language, key, with)
}

// buttons returns a row of buttons about the request or other record with an id.
func (tn *turn) buttons(id string, verbs ...string) [][]platform.Button {
	return request.Buttons(tn.voice.texts, tn.language, id, verbs...)
}

// reply replies to the message of the turn, visible only to its author where the platform
// allows that.
func (tn *turn) reply(ctx context.Context, text string) error {
	return tn.post(ctx, platform.Post{Text: text, ReplyTo: tn.Message.ID, Private: true, Press: tn.Press})
}

// replyLong replies with as many messages as the text needs, with links under the last one.
// If the bridge is killed halfway, it starts over.
func (tn *turn) replyLong(ctx context.Context, text string, links ...platform.Button) error {
	parts := platform.Split(text, tn.p.Limits().Text)
	for i, part := range parts {
		post := platform.Post{Text: part, ReplyTo: tn.Message.ID, Private: true, Press: tn.Press}
		if i == len(parts)-1 {
			post.Buttons = withLinks(nil, links)
		}
		if err := tn.post(ctx, post); err != nil {
			return err
		}
	}
	return nil
}

// complain tells the user what is wrong with a message. It returns an error that is no
// complaint.
func (tn *turn) complain(ctx context.Context, err error) error {
	c, ok := errors.AsType[*workflow.Complaint](err)
	if !ok {
		return err
	}
	text := tn.say(c.Key, c.With)
	if tn.Kind == platform.Pressed {
		return tn.post(ctx, platform.Post{Text: text, Private: true, Press: tn.Press})
	}
	return tn.reply(ctx, text)
}

// off reports whether a command is turned off in the group, and tells the user if so.
func (tn *turn) off(ctx context.Context, c *workflow.Command) (bool, error) {
	if !slices.Contains(tn.group.Off, c.Name) {
		return false, nil
	}
	return true, tn.reply(ctx, tn.say("group_off", locale.With{"command": c.Name}))
}

// resent tells the user why files could not be sent again; err is the result of trying.
func (tn *turn) resent(ctx context.Context, err error) error {
	if err == nil || mayPass(err) {
		return err
	}
	text := tn.say("lost", nil)
	if kept, ok := errors.AsType[*request.KeptError](err); ok {
		text = kept.Say(tn.voice.texts, tn.language)
	} else if errors.Is(err, platform.ErrNoMedia) {
		text = tn.say("barred_late", nil)
	} else if errors.Is(err, request.ErrUnjudged) {
		text = tn.say("delete_later", nil)
	}
	return tn.reply(ctx, text)
}

// post sends a message and waits for the result. A message that the platform will never
// accept is dropped. If it may not have arrived, post returns an error, so that the event
// is handled again.
func (tn *turn) post(ctx context.Context, post platform.Post) error {
	_, err := tn.send(ctx, post)
	return err
}

// send is post, and returns the ids of the messages.
func (tn *turn) send(ctx context.Context, post platform.Post) ([]string, error) {
	ids, err := tn.sendOn(ctx, post)
	if err == nil || platform.Permanent(err) || errors.Is(err, outbox.ErrGaveUp) || errors.Is(err, outbox.ErrFull) {
		return ids, nil
	}
	return nil, err
}

// sendOn sends a message, to the new chat if the turn's has moved, and notes whose buttons
// are under it.
func (tn *turn) sendOn(ctx context.Context, post platform.Post) ([]string, error) {
	ids, err := tn.voice.outbox.Send(ctx, tn.p, tn.Chat, post)
	if moved, ok := errors.AsType[*platform.MovedError](err); ok {
		tn.Chat.ID, tn.Chat.Topic, post.ReplyTo = moved.To, "", ""
		ids, err = tn.voice.outbox.Send(ctx, tn.p, tn.Chat, post)
	}
	tn.noteButtons(ctx, post, ids)
	return ids, err
}

// noteButtons records what the buttons under a message are about: a request, a list, or the
// user whose settings they change.
func (tn *turn) noteButtons(ctx context.Context, post platform.Post, ids []string) {
	about := ""
	for _, row := range post.Buttons {
		for _, button := range row {
			if verb, rest, _ := strings.Cut(button.Data, ":"); about == "" && verb != verbGet {
				about, _, _ = strings.Cut(rest, ":")
			}
		}
	}
	for _, id := range ids {
		if about == "" {
			return
		}
		// While Redis is away nothing else works here either, and without the note the
		// buttons would be dead.
		err := retry.New(notePause, maxNotePause).Do(ctx, func(ctx context.Context) error {
			return tn.voice.store.Put(ctx, request.MessageKind, messageName(tn, id), about, request.PictureKeep)
		}, func(err error) bool { return errors.Is(err, state.ErrUnavailable) })
		if err != nil {
			tn.voice.logger.Warn("cannot note what the buttons of a message are about", "error", err)
		}
	}
}

// answer ends the spinning of the pressed button and shows a text.
func (tn *turn) answer(ctx context.Context, key string) {
	tn.answerText(ctx, tn.say(key, nil))
}

// answerText is answer for a text that is already in words, "" for none.
func (tn *turn) answerText(ctx context.Context, text string) {
	tn.voice.outbox.Answer(ctx, tn.p, tn.Press, text)
}

// edit changes a message in the chat of the turn. It returns only errors after which the
// event is to be handled again.
func (tn *turn) edit(ctx context.Context, message string, post platform.Post) error {
	if err := tn.voice.outbox.Edit(ctx, tn.p, tn.Chat, message, post); mayPass(err) {
		return err
	}
	return nil
}

// mayPass reports whether handling the event again may help.
func mayPass(err error) bool {
	return errors.Is(err, state.ErrUnavailable) || errors.Is(err, state.ErrDeposed) || errors.Is(err, outbox.ErrNotSent) ||
		errors.Is(err, context.Canceled)
}
