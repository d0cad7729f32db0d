package conversation

import (
	"context"
	"errors"

	"github.com/comfyhub/comfyhub/botbridge/internal/enhance"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// Listener writes down voice messages.
type Listener struct {
	Client *enhance.Transcriber
	// PerDay is how many of a user's messages it writes down in a day.
	PerDay int
}

// hearing turns voice messages into words.
type hearing struct {
	store   *state.Store
	with    *Listener // nil: nobody listens
	consent *consent
}

// hear puts what is said in a voice message in its place. It returns false if it has told the
// user why that is not possible. In a group, only what is said to the bot is listened to.
func (h *hearing) hear(ctx context.Context, tn *turn) (bool, error) {
	if h.with == nil || len(tn.Message.Files) != 1 || tn.Message.Files[0].Type != platform.Voice || tn.Message.Files[0].ID == "" {
		return true, nil
	}
	if err := h.consent.agreed(ctx, tn); err != nil {
		return false, err
	}
	ok, err := h.store.Usage.Count(ctx, "transcribe", tn.who(), request.IDOf(tn.Key()), h.with.PerDay)
	if err != nil {
		return false, err
	}
	if !ok {
		return false, tn.reply(ctx, tn.say("voice_share", locale.With{"max": h.with.PerDay}))
	}
	words, err := h.words(ctx, tn)
	switch {
	case err == nil:
		tn.Message.Text, tn.Message.Files = words, nil
		if tn.Chat.Group {
			return true, nil
		}
		return true, tn.reply(ctx, tn.say("voice_heard", locale.With{"words": short(words)}))
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.Is(err, enhance.ErrLong), errors.Is(err, platform.ErrTooLarge):
		return false, tn.reply(ctx, tn.say("voice_long", nil))
	case errors.Is(err, enhance.ErrSilent):
		return false, tn.reply(ctx, tn.say("voice_silent", nil))
	}
	tn.voice.logger.Warn("a voice message could not be written down", "error", err)
	return false, tn.reply(ctx, tn.say("voice_away", nil))
}

func (h *hearing) words(ctx context.Context, tn *turn) (string, error) {
	file := tn.Message.Files[0]
	body, err := tn.p.Open(ctx, file)
	if err != nil {
		return "", err
	}
	defer body.Close()
	return h.with.Client.Words(ctx, file.Name, body)
}
