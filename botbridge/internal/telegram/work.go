package telegram

import (
	"context"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

var _ platform.Worker = (*Telegram)(nil)

// WorkLasts implements platform.Worker: "5 seconds or less".
func (t *sender) WorkLasts() time.Duration { return 5 * time.Second }

// Work implements platform.Worker. Telegram does not say whether it counts against the 20
// messages a minute of a group, so there it is left out.
func (t *sender) Work(ctx context.Context, to platform.Chat, makes platform.Media) error {
	if to.Group {
		return nil
	}
	action := models.ChatActionTyping
	switch makes {
	case platform.Photo:
		action = models.ChatActionUploadPhoto
	case platform.Video, platform.Animation:
		action = models.ChatActionUploadVideo
	case platform.Audio:
		action = models.ChatActionUploadVoice
	case platform.Document:
		action = models.ChatActionUploadDocument
	}
	ctx, seen := observed(ctx)
	_, err := t.bot.SendChatAction(ctx, &bot.SendChatActionParams{ChatID: to.ID, MessageThreadID: number(to.Topic), Action: action})
	return seen.explain(err)
}
