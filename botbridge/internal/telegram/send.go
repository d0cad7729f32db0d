package telegram

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// source is a file being sent to Telegram. It records when it cannot be read,
// because then Telegram has received nothing usable.
type source struct {
	io.ReadCloser
	seen *attempt
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.seen.source.Store(true)
	}
	return n, err
}

// open opens the files of a post; close them all.
func open(ctx context.Context, files []platform.Attachment, seen *attempt) (sources []*source, closeAll func(), err error) {
	closeAll = func() {
		for _, s := range sources {
			s.Close()
		}
	}
	for _, f := range files {
		body, err := f.Open(ctx)
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("%w: %w", platform.ErrSource, err)
		}
		sources = append(sources, &source{body, seen})
	}
	return sources, closeAll, nil
}

// Send implements platform.Platform. It never sets a parse mode, so that no text is
// interpreted as markup.
func (t *sender) Send(ctx context.Context, to platform.Chat, p platform.Post) ([]string, error) {
	ctx, seen := observed(ctx)
	if p.Invoice != nil {
		return t.sendInvoice(ctx, seen, to, p)
	}
	if len(p.Files) > 1 {
		return t.sendAlbum(ctx, seen, to, p)
	}
	if p.Copy != nil {
		// If the chat that it is copied to is what is wrong, the upload says so.
		ids, err := t.copy(ctx, to, p)
		if wait := (*platform.WaitError)(nil); err == nil || errors.As(err, &wait) || errors.Is(err, platform.ErrUncertain) {
			return ids, err
		}
		ctx, seen = observed(ctx)
	}
	sources, closeAll, err := open(ctx, p.Files, seen)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	var m *models.Message
	if len(sources) == 0 {
		m, err = t.bot.SendMessage(ctx, &bot.SendMessageParams{
			ChatID: to.ID, MessageThreadID: number(to.Topic), Text: platform.Clip(p.Text, maxText), ReplyParameters: reply(p), ReplyMarkup: markup(p),
			LinkPreviewOptions: &models.LinkPreviewOptions{IsDisabled: bot.True()}, DisableNotification: p.Quiet,
		})
	} else {
		m, err = t.sendFile(ctx, to, p, sources[0])
	}
	if err := seen.explain(err); err != nil {
		return nil, err
	}
	return []string{t.numbers.posted(to, m.ID, photoOf(m))}, nil
}

// copy sends what a message shows again, without an upload.
func (t *sender) copy(ctx context.Context, to platform.Chat, p platform.Post) ([]string, error) {
	ctx, seen := observed(ctx)
	m, err := t.bot.CopyMessage(ctx, &bot.CopyMessageParams{
		ChatID: to.ID, MessageThreadID: number(to.Topic), FromChatID: p.Copy.Chat, MessageID: number(p.Copy.Message), Caption: platform.Clip(p.Text, maxCaption),
		ReplyParameters: reply(p), ReplyMarkup: markup(p),
	})
	if err := seen.explain(err); err != nil {
		return nil, err
	}
	return []string{t.numbers.posted(to, m.ID, "")}, nil
}

func (t *sender) sendFile(ctx context.Context, to platform.Chat, p platform.Post, from io.Reader) (*models.Message, error) {
	upload := &models.InputFileUpload{Filename: p.Files[0].Name, Data: from}
	thread, caption := number(to.Topic), platform.Clip(p.Text, maxCaption)
	switch p.Files[0].Media {
	case platform.Photo:
		return t.bot.SendPhoto(ctx, &bot.SendPhotoParams{
			ChatID: to.ID, MessageThreadID: thread, Photo: upload, Caption: caption, ReplyParameters: reply(p), ReplyMarkup: markup(p),
			HasSpoiler: p.Files[0].Spoiler,
		})
	case platform.Video:
		return t.bot.SendVideo(ctx, &bot.SendVideoParams{
			ChatID: to.ID, MessageThreadID: thread, Video: upload, Caption: caption, ReplyParameters: reply(p), ReplyMarkup: markup(p),
			HasSpoiler:        p.Files[0].Spoiler,
			SupportsStreaming: true,
			Width:             p.Files[0].Width, Height: p.Files[0].Height, Duration: seconds(p.Files[0]),
		})
	case platform.Animation:
		return t.bot.SendAnimation(ctx, &bot.SendAnimationParams{
			ChatID: to.ID, MessageThreadID: thread, Animation: upload, Caption: caption, ReplyParameters: reply(p), ReplyMarkup: markup(p),
			HasSpoiler: p.Files[0].Spoiler,
		})
	case platform.Audio:
		return t.bot.SendAudio(ctx, &bot.SendAudioParams{
			ChatID: to.ID, MessageThreadID: thread, Audio: upload, Caption: caption, ReplyParameters: reply(p), ReplyMarkup: markup(p),
		})
	case platform.Document:
	}
	return t.bot.SendDocument(ctx, &bot.SendDocumentParams{
		ChatID: to.ID, MessageThreadID: thread, Document: upload, Caption: caption, ReplyParameters: reply(p), ReplyMarkup: markup(p),
		DisableContentTypeDetection: true,
	})
}

// seconds is how long a video plays, rounded up: Telegram takes 0 for unknown.
func seconds(f platform.Attachment) int { return int(math.Ceil(f.Length.Seconds())) }

// sendAlbum sends several pictures as one. Buttons are not possible there.
func (t *sender) sendAlbum(ctx context.Context, seen *attempt, to platform.Chat, p platform.Post) ([]string, error) {
	sources, closeAll, err := open(ctx, p.Files, seen)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	params := &bot.SendMediaGroupParams{ChatID: to.ID, MessageThreadID: number(to.Topic), ReplyParameters: reply(p)}
	for i, f := range p.Files {
		caption := ""
		if i == 0 {
			caption = platform.Clip(p.Text, maxCaption)
		}
		params.Media = append(params.Media, input(f, fmt.Sprintf("file%d%s", i, f.Name), caption, sources[i]))
	}
	list, err := t.bot.SendMediaGroup(ctx, params)
	if err := seen.explain(err); err != nil {
		return nil, err
	}
	var ids []string
	for _, m := range list {
		ids = append(ids, t.numbers.posted(to, m.ID, photoOf(m)))
	}
	return ids, nil
}

func input(f platform.Attachment, name, caption string, from io.Reader) models.InputMedia {
	name = "attach://" + name
	switch f.Media {
	case platform.Photo:
		return &models.InputMediaPhoto{Media: name, Caption: caption, MediaAttachment: from, HasSpoiler: f.Spoiler}
	case platform.Video:
		return &models.InputMediaVideo{Media: name, Caption: caption, MediaAttachment: from, SupportsStreaming: true, HasSpoiler: f.Spoiler, Width: f.Width, Height: f.Height, Duration: seconds(f)}
	case platform.Animation:
		return &models.InputMediaAnimation{Media: name, Caption: caption, MediaAttachment: from, HasSpoiler: f.Spoiler}
	case platform.Audio:
		return &models.InputMediaAudio{Media: name, Caption: caption, MediaAttachment: from}
	case platform.Document:
	}
	return &models.InputMediaDocument{Media: name, Caption: caption, MediaAttachment: from}
}

// Edit implements platform.Platform. A text message becomes a picture if there is
// one to show; its text is then the caption.
func (t *sender) Edit(ctx context.Context, to platform.Chat, message string, p platform.Post) error {
	if len(p.Files) > 0 {
		return t.editMedia(ctx, to, message, p)
	}
	editing, seen := observed(ctx)
	err := t.editText(editing, to, message, p)
	if err != nil && strings.Contains(err.Error(), "no text in the message") {
		editing, seen = observed(ctx)
		err = t.editCaption(editing, to, message, p)
	}
	return seen.explain(err)
}

func (t *sender) editText(ctx context.Context, to platform.Chat, message string, p platform.Post) error {
	_, err := t.bot.EditMessageText(ctx, &bot.EditMessageTextParams{
		ChatID: to.ID, MessageID: number(message), Text: platform.Clip(p.Text, maxText), ReplyMarkup: markup(p),
		LinkPreviewOptions: &models.LinkPreviewOptions{IsDisabled: bot.True()},
	})
	return err
}

// editCaption edits the text below a file. Those of an album have no buttons.
func (t *sender) editCaption(ctx context.Context, to platform.Chat, message string, p platform.Post) error {
	edit := &bot.EditMessageCaptionParams{ChatID: to.ID, MessageID: number(message), Caption: platform.Clip(p.Text, maxCaption)}
	if len(p.Files) < 2 {
		edit.ReplyMarkup = markup(p)
	}
	_, err := t.bot.EditMessageCaption(ctx, edit)
	return err
}

func (t *sender) editMedia(ctx context.Context, to platform.Chat, message string, p platform.Post) error {
	ctx, seen := observed(ctx)
	sources, closeAll, err := open(ctx, p.Files[:1], seen)
	if err != nil {
		return err
	}
	defer closeAll()
	_, err = t.bot.EditMessageMedia(ctx, &bot.EditMessageMediaParams{
		ChatID: to.ID, MessageID: number(message), ReplyMarkup: markup(p),
		Media: input(p.Files[0], "file0"+p.Files[0].Name, platform.Clip(p.Text, maxCaption), sources[0]),
	})
	return seen.explain(err)
}

func reply(p platform.Post) *models.ReplyParameters {
	if p.ReplyTo == "" {
		return nil
	}
	return &models.ReplyParameters{MessageID: number(p.ReplyTo), AllowSendingWithoutReply: true}
}

// markup is nil without buttons, because an empty keyboard is refused.
func markup(p platform.Post) models.ReplyMarkup {
	var rows [][]models.InlineKeyboardButton
	for _, row := range p.Buttons {
		var buttons []models.InlineKeyboardButton
		for _, b := range row {
			if b.URL == "" || linkable(b.URL) {
				buttons = append(buttons, models.InlineKeyboardButton{Text: b.Label, CallbackData: b.Data, URL: b.URL, SwitchInlineQuery: b.Share})
			}
		}
		if len(buttons) > 0 {
			rows = append(rows, buttons)
		}
	}
	switch {
	case len(rows) == 0 && p.Asks:
		// Selective: in a group only whose message is answered is asked.
		return &models.ForceReply{ForceReply: true, Selective: true}
	case len(rows) == 0:
		return nil
	}
	return &models.InlineKeyboardMarkup{InlineKeyboard: rows}
}
