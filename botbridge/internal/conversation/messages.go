package conversation

import (
	"context"
	"slices"
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// messages handles what users write: commands, answers and plain words.
type messages struct {
	hearing   *hearing
	guard     *limits.Guard
	commands  *repertoire
	hints     *hints
	find      *finder
	refunds   *refunds
	questions *questions
	remixes   *remixes
	asker     *asker
	builtIn   map[string]func(context.Context, *turn) error // by command
	admin     map[string]func(context.Context, *turn) error // for operators
	answers   *answers
}

// said answers a message.
func (ms *messages) said(ctx context.Context, tn *turn) error {
	name, rest, ok := commandOf(tn.Message.Text)
	if !ok {
		return ms.words(ctx, tn)
	}
	tn.rest = rest
	if answer := ms.builtIn[name]; answer != nil {
		return answer(ctx, tn)
	}
	if answer := ms.admin[name]; answer != nil && ms.guard.Admin(tn.Event) {
		return answer(ctx, tn)
	}
	if c := ms.commands.byName[name]; c != nil {
		return ms.asker.ask(ctx, tn, c)
	}
	if name == refundCommand && ms.guard.Admin(tn.Event) {
		return ms.refunds.byHand(ctx, tn) // also for earlier sales
	}
	if tn.Chat.Group {
		// It may be for another bot.
		return nil
	}
	return tn.reply(ctx, tn.say("unknown_command", nil))
}

// words handles a message without a command: it answers a question, changes the picture
// that it brings or replies to, or is for the default command.
func (ms *messages) words(ctx context.Context, tn *turn) error {
	if heard, err := ms.hearing.hear(ctx, tn); !heard || err != nil {
		return err
	}
	tn.rest = strings.TrimSpace(tn.Message.Text)
	if rec, ok, err := ms.remixes.asked(ctx, tn); err != nil {
		return err
	} else if ok {
		return ms.remixes.make(ctx, tn, rec, tn.rest)
	}
	if done, err := ms.answers.said(ctx, tn); done || err != nil {
		return err
	}
	if tn.Message.Album != "" && tn.rest == "" {
		return nil
	}
	if err := ms.find.findShown(ctx, tn); err != nil {
		return err
	}
	if tn.Chat.Group && !tn.Addressed && len(tn.shown) == 0 {
		return nil
	}
	if key := useless(tn.Message.Files); key != "" {
		return ms.useless(ctx, tn, key)
	}
	pictured := len(tn.shown) > 0 || slices.ContainsFunc(filesWith(tn), usable)
	own := len(tn.Message.Files) > 0
	usual, edit := ms.commands.usual(tn), ms.commands.byName[ms.commands.edit]
	switch {
	case pictured && tn.rest != "" && edit != nil:
		return ms.asker.ask(ctx, tn, edit)
	case pictured && own && edit != nil:
		inputs, _ := inputsOf(tn.Message.Files, edit, nil)
		return ms.questions.put(ctx, tn, edit, question{Needs: needsChange, Inputs: inputs})
	case usual != nil && tn.rest != "" && !own:
		return ms.asker.ask(ctx, tn, usual)
	case !ms.hints.may(tn):
		return nil
	}
	if c := ms.commands.fromWords(tn); c != nil && !own {
		return tn.reply(ctx, tn.say("hint_words", locale.With{"command": c.Name}))
	}
	return tn.reply(ctx, tn.say("hint_photo", nil))
}

// useless says that nothing can be made of what a message brings. A sticker or a voice
// message in a group is for the others there.
func (ms *messages) useless(ctx context.Context, tn *turn, key string) error {
	kind := tn.Message.Files[0].Type
	if tn.Chat.Group && (kind == platform.Voice || kind == platform.Sticker) || !ms.hints.may(tn) {
		return nil
	}
	return tn.reply(ctx, tn.say(key, nil))
}
