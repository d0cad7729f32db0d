package telegram

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

var _ platform.Menued = (*Telegram)(nil)

// Menu implements platform.Menued.
func (t *Telegram) Menu() string {
	doc, err := json.Marshal(t.o.Commands)
	if err != nil {
		return ""
	}
	return string(doc)
}

// Hide implements platform.Menued. Telegram shows the menu of a chat rather than the usual
// one, whatever the languages of either: it is set or removed in all of them.
func (t *Telegram) Hide(ctx context.Context, in platform.Chat, commands []string) error {
	scope := &models.BotCommandScopeChat{ChatID: in.ID}
	for language, list := range t.o.Commands {
		ctx, seen := observed(ctx)
		var err error
		if len(commands) == 0 {
			_, err = t.bot.DeleteMyCommands(ctx, &bot.DeleteMyCommandsParams{Scope: scope, LanguageCode: language})
		} else {
			left := slices.DeleteFunc(slices.Clone(list), func(c Command) bool { return slices.Contains(commands, c.Name) })
			_, err = t.bot.SetMyCommands(ctx, &bot.SetMyCommandsParams{Scope: scope, LanguageCode: language, Commands: menuOf(left)})
		}
		if err := seen.explain(err); err != nil {
			return err
		}
	}
	return nil
}

func menuOf(list []Command) (menu []models.BotCommand) {
	for _, c := range list {
		menu = append(menu, models.BotCommand{Command: c.Name, Description: c.About})
	}
	return menu
}
