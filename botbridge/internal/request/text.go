package request

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

const (
	// maxTextBytes bounds the texts of a run that are kept until they are sent.
	maxTextBytes = 256 << 10
	// textHead is how much of a text is shown above the file with the whole, in UTF-16
	// units.
	textHead = 300
)

// bounded returns the texts to send, within maxTextBytes; cut is appended where one was cut
// off.
func bounded(texts []string, cut string) (list []Text) {
	left := maxTextBytes
	for _, text := range texts {
		if len(text) > left {
			for left > 0 && !utf8.RuneStart(text[left]) {
				left--
			}
			return append(list, Text{Text: text[:left] + "…\n" + cut})
		}
		left -= len(text)
		list = append(list, Text{Text: text})
	}
	return list
}

// deliverTexts sends the texts that have not been sent. One that may have arrived is sent
// again: seeing a text twice does no harm.
func (d *delivery) deliverTexts(ctx context.Context) error {
	for i := range d.rec.Texts {
		if d.rec.Texts[i].Told {
			continue
		}
		message, err := d.deliverText(ctx, i)
		switch {
		case errors.Is(err, outbox.ErrGaveUp), platform.Permanent(err):
			d.logger.Warn("a text could not be sent", "request", d.rec.ID, "error", err)
			d.rec.Texts[i].Lost = true
		case err != nil:
			return fmt.Errorf("sending a text: %w", err)
		}
		d.rec.Texts[i].Told, d.rec.Texts[i].Message = true, message
		if message != "" {
			d.entry.noteMessage(ctx, d.rec.Chat, message)
		}
		if err := d.entry.save(ctx); err != nil {
			return err
		}
	}
	return nil
}

// deliverText sends one text and returns the message that has it.
func (d *delivery) deliverText(ctx context.Context, i int) (string, error) {
	posts := d.textPosts(d.rec.Texts[i].Text)
	only := len(d.rec.Outputs) == 0
	if only && i == len(d.rec.Texts)-1 {
		posts[len(posts)-1].Buttons = d.words.doneButtons()
	}
	if only && len(d.rec.Texts) == 1 && len(posts) == 1 && d.rec.Status != "" && (d.replaces || d.platform.Limits().InPlace) {
		err := d.outbox.Edit(ctx, d.platform, d.rec.Chat, d.rec.Status, posts[0])
		if !errors.Is(err, platform.ErrGone) && !errors.Is(err, platform.ErrRefused) {
			return d.rec.Status, err
		}
		d.rec.Status = "" // the user has deleted it: send a new one
	}
	message := ""
	for n, post := range posts {
		post.ReplyTo, post.ID = d.rec.Message, d.rec.postID(fmt.Sprintf("text/%d/%d", i, n))
		ids, err := d.outbox.Send(ctx, d.platform, d.rec.Chat, post)
		if err != nil {
			return "", err
		}
		if len(ids) > 0 {
			message = ids[0]
		}
	}
	return message, nil
}

// textPosts returns the messages for a text: one, with a file if it is too long, or several
// where files have to be links.
func (d *delivery) textPosts(text string) []platform.Post {
	limits := d.platform.Limits()
	switch {
	case limits.Text == 0 || platform.Units(text) < limits.Text:
		return []platform.Post{{Text: text}}
	case limits.Linked:
		var posts []platform.Post
		for _, part := range platform.Split(text, limits.Text) {
			posts = append(posts, platform.Post{Text: part})
		}
		return posts
	}
	return []platform.Post{{Text: platform.Clip(text, min(textHead, limits.Caption)), Files: []platform.Attachment{{
		Name: "text.txt", Media: platform.Document, Size: int64(len(text)),
		Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader([]byte(text))), nil },
	}}}}
}

// saidAtOnce reports whether there were only texts, and they were sent with their buttons.
func (r *Record) saidAtOnce() bool {
	return len(r.Outputs) == 0 && len(r.Texts) > 0 && !r.textLost()
}

func (r *Record) textLost() bool {
	return slices.ContainsFunc(r.Texts, func(t Text) bool { return t.Lost })
}
