package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/comfyhub/comfyhub/botbridge/internal/config"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/telegram"
	"github.com/comfyhub/comfyhub/botbridge/internal/webchat"
)

// Check returns what New would refuse in a configuration whose Problems are known, and
// what Telegram says of the token; name is the bot's, if Telegram was asked and knows
// it. Nothing is started.
func Check(ctx context.Context, c *config.Config, ask bool) (name string, list []error) {
	if _, err := locale.Load(c.LocaleFolder()); err != nil {
		list = append(list, err)
	}
	if c.Redis != "embedded" {
		if store, err := state.Open(ctx, state.Place{URL: c.Redis, Prefix: c.Prefix, Logger: slog.New(slog.DiscardHandler)}, state.Options{}); err != nil {
			list = append(list, err)
		} else {
			_ = store.Close()
		}
	}
	if c.Webchat != nil {
		if secret, err := c.Webchat.Secret.Read(c.Folder); err == nil {
			w, err := webchat.New(webchat.Options{Secret: secret, Callback: c.Webchat.Callback, FilesFrom: c.Webchat.FilesFrom})
			if err != nil {
				list = append(list, err)
			} else {
				w.Close()
			}
		}
	}
	if c.Telegram == nil || !ask {
		return "", list
	}
	token, err := c.Telegram.Token.Read(c.Folder)
	if err != nil {
		return "", list // said already
	}
	t, err := telegram.New(telegram.Options{Token: token, Server: c.Telegram.Server})
	if err != nil {
		return "", append(list, err)
	}
	defer t.Close()
	if name, err = t.Me(ctx); errors.Is(err, telegram.ErrToken) {
		return "", append(list, fmt.Errorf("telegram: token: %w", err))
	} else if err != nil {
		return "", append(list, fmt.Errorf("telegram was not asked about the token: %w", err))
	}
	return name, list
}
