package telegram

import (
	"context"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// MayShow implements platform.Permitted. Administrators may send anything, and what may not be
// shown as a picture or a video may perhaps go as a document.
func (t *sender) MayShow(ctx context.Context, in platform.Chat, media platform.Media) error {
	asking, seen := observed(ctx)
	me, err := t.bot.GetChatMember(asking, &bot.GetChatMemberParams{ChatID: in.ID, UserID: t.bot.ID()})
	if err := seen.explain(err); err != nil {
		return err
	}
	var may *models.ChatPermissions
	switch r := me.Restricted; {
	case r != nil:
		may = &models.ChatPermissions{
			CanSendPhotos: r.CanSendPhotos, CanSendVideos: r.CanSendVideos, CanSendAudios: r.CanSendAudios, CanSendDocuments: r.CanSendDocuments,
		}
	case me.Member == nil:
		return nil
	default:
		asking, seen = observed(ctx)
		chat, err := t.bot.GetChat(asking, &bot.GetChatParams{ChatID: in.ID})
		if err := seen.explain(err); err != nil {
			return err
		}
		may = chat.Permissions
	}
	allowed := may == nil || may.CanSendDocuments
	switch media {
	case platform.Photo:
		allowed = allowed || may.CanSendPhotos
	case platform.Video:
		allowed = allowed || may.CanSendVideos
	case platform.Audio:
		allowed = allowed || may.CanSendAudios
	case platform.Animation, platform.Document:
	default:
		return nil // it makes text
	}
	if !allowed {
		return platform.ErrNoMedia
	}
	return nil
}
