package bridge

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/comfyhub/comfyhub/botbridge/internal/config"
	"github.com/comfyhub/comfyhub/botbridge/internal/discord"
	"github.com/comfyhub/comfyhub/botbridge/internal/enhance"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/botbridge/internal/telegram"
	"github.com/comfyhub/comfyhub/botbridge/internal/webchat"
)

// Check returns what New would refuse in a configuration whose Problems are known, and
// what Telegram and Discord say of their tokens, and the endpoint for better words when it
// is asked; names are the bot's there, for people, as far as they were asked and know it.
// Nothing is started.
func Check(ctx context.Context, c *config.Config, ask bool) (names []string, list []error) {
	if _, err := locale.Load(c.LocaleFolder()); err != nil {
		list = append(list, err)
	}
	commands, _ := c.Bind() // what is wrong with them is known
	list = append(list, sellProblems(c, commands)...)
	if c.Redis != "embedded" {
		store, err := state.Open(ctx, state.Place{URL: c.Redis, Prefix: c.Prefix, Logger: slog.New(slog.DiscardHandler)}, state.Options{})
		if err == nil && ask {
			err = store.Ping(ctx)
		}
		if err != nil {
			list = append(list, fmt.Errorf("redis: %w", err))
		}
		if store != nil {
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
	if !ask {
		return nil, list
	}
	for _, p := range []struct {
		title string
		name  func(context.Context, *config.Config) (string, error)
	}{{"", askTelegram}, {" on Discord", askDiscord}, {"", askEnhance}, {"", askTranscribe}} {
		name, err := p.name(ctx, c)
		if err != nil {
			list = append(list, err)
		} else if name != "" {
			names = append(names, "@"+name+p.title)
		}
	}
	return names, list
}

// askTelegram returns the name of the bot, "" if there is none or its token is known to
// be missing.
func askTelegram(ctx context.Context, c *config.Config) (string, error) {
	if c.Telegram == nil {
		return "", nil
	}
	token, err := c.TelegramToken()
	if err != nil {
		return "", nil // said already
	}
	t, err := telegram.New(telegram.Options{Token: token, Server: c.Telegram.Server, Inline: c.Telegram.Inline})
	if err != nil {
		return "", err
	}
	defer t.Close()
	name, err := t.Me(ctx)
	if errors.Is(err, telegram.ErrToken) {
		return "", fmt.Errorf("telegram: token: %w", err)
	} else if errors.Is(err, telegram.ErrNoInline) {
		return name, fmt.Errorf("telegram: inline: %w", err)
	} else if err != nil {
		return "", fmt.Errorf("telegram: the token could not be checked: %w", err)
	}
	return name, nil
}

// askEnhance asks for better words. It returns no name.
func askEnhance(ctx context.Context, c *config.Config) (string, error) {
	if c.Enhance == nil || c.Enhance.Model == "" {
		return "", nil
	}
	o, err := c.Enhance.Options(c.Folder)
	if err != nil {
		return "", nil // said already
	}
	client := enhance.New(o)
	defer client.Close()
	if _, err := client.Ask(ctx, enhance.Improve, "a red fox in the snow"); err != nil {
		return "", fmt.Errorf("enhance: it did not answer a test: %w", err)
	}
	return "", nil
}

// askTranscribe has a second of silence written down. It returns no name.
func askTranscribe(ctx context.Context, c *config.Config) (string, error) {
	if c.Transcribe == nil || c.Transcribe.Model == "" {
		return "", nil
	}
	o, err := c.Transcribe.Options(c.Folder)
	if err != nil {
		return "", nil // said already
	}
	client := enhance.NewTranscriber(o)
	defer client.Close()
	const rate = 8000
	var wave bytes.Buffer
	for _, field := range []any{
		[]byte("RIFF"), uint32(36 + 2*rate), []byte("WAVEfmt "), uint32(16), uint16(1), uint16(1), uint32(rate), uint32(2 * rate), uint16(2), uint16(16),
		[]byte("data"), uint32(2 * rate), make([]byte, 2*rate),
	} {
		_ = binary.Write(&wave, binary.LittleEndian, field)
	}
	if _, err := client.Words(ctx, "silence.wav", &wave); err != nil && !errors.Is(err, enhance.ErrSilent) {
		return "", fmt.Errorf("transcribe: it did not answer a test: %w", err)
	}
	return "", nil
}

// askDiscord does the same.
func askDiscord(ctx context.Context, c *config.Config) (string, error) {
	if c.Discord == nil {
		return "", nil
	}
	token, err := c.Discord.Token.Read(c.Folder)
	if err != nil {
		return "", nil // said already
	}
	d, err := discord.New(discord.Options{Token: token, Server: c.Discord.Server})
	if err != nil {
		return "", err
	}
	defer d.Close()
	name, err := d.Me(ctx)
	if errors.Is(err, discord.ErrToken) {
		return "", fmt.Errorf("discord: token: %w", err)
	} else if err != nil {
		return "", fmt.Errorf("discord: the token could not be checked: %w", err)
	}
	return name, nil
}
