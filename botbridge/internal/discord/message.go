package discord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// spoken is what is read of MESSAGE_CREATE and MESSAGE_UPDATE. disgo's type refuses
// whole messages for parts that it does not know.
type spoken struct {
	ID          string  `json:"id"`
	Channel     string  `json:"channel_id"`
	Guild       string  `json:"guild_id"`
	Webhook     string  `json:"webhook_id"`
	Content     string  `json:"content"`
	Edited      string  `json:"edited_timestamp"`
	Author      *user   `json:"author"`
	Member      *member `json:"member"`
	Mentions    []user  `json:"mentions"`
	Attachments []file  `json:"attachments"`
	Replied     *spoken `json:"referenced_message"`
}

// said reads a message. It returns nil for one that is not for the bot.
func (d *receiver) said(raw json.RawMessage, kind platform.Kind) func(context.Context) (platform.Event, bool) {
	var m spoken
	if json.Unmarshal(raw, &m) != nil || !isID(m.ID) || !isID(m.Channel) {
		return nil
	}
	e, ok := d.heardOf(&m, kind)
	if !ok {
		return nil
	}
	return func(context.Context) (platform.Event, bool) { return e, true }
}

func (d *receiver) heardOf(m *spoken, kind platform.Kind) (platform.Event, bool) {
	me := d.me.Load()
	if me == nil || m.Author == nil || m.Author.Bot || m.Webhook != "" || !isID(m.Author.ID) || !d.welcome(m.Guild, m.Member) {
		return platform.Event{}, false
	}
	e := platform.Event{
		ID: "m" + m.ID, Platform: Name, Kind: kind, At: time.Now(),
		Chat: platform.Chat{ID: m.Channel, Group: m.Guild != ""}, User: m.Author.user(""), Message: m.message(),
	}
	if kind == platform.Edited {
		if m.Edited == "" {
			return e, false // Discord itself has changed it, for a preview of a link
		}
		e.ID += "/" + m.Edited
	}
	mine := func(u user) bool { return u.ID == me.user }
	toUs := m.Replied != nil && m.Replied.Author != nil && mine(*m.Replied.Author)
	if e.Chat.Group {
		e.Addressed = slices.ContainsFunc(m.Mentions, mine) && strings.Contains(m.Content, me.user)
		if !e.Addressed && !toUs {
			return e, false
		}
	}
	for _, mention := range []string{"<@" + me.user + ">", "<@!" + me.user + ">"} {
		e.Message.Text = strings.ReplaceAll(e.Message.Text, mention, "")
	}
	e.Message.Text = strings.TrimSpace(e.Message.Text)
	if m.Replied != nil && isID(m.Replied.ID) {
		to := m.Replied.message()
		e.Message.ReplyTo = &to
	}
	return e, e.Message.Text != "" || len(e.Message.Files) > 0
}

func (m *spoken) message() platform.Message {
	out := platform.Message{ID: m.ID, Text: m.Content}
	for _, f := range m.Attachments {
		out.Files = append(out.Files, f.file())
	}
	return out
}

// Open implements platform.Platform: the id of a file is its address, which works for
// about a day. Only Discord's own servers are asked.
func (d *Discord) Open(ctx context.Context, f platform.File) (io.ReadCloser, error) {
	if f.Size > d.o.Download {
		return nil, platform.ErrTooLarge
	}
	u, err := url.Parse(f.ID)
	if err != nil || u.User != nil || !slices.Contains(d.cdn, u.Host) || u.Scheme != "https" && !strings.HasPrefix(d.o.Server, u.Scheme+"://") {
		return nil, platform.ErrRefused
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, platform.ErrRefused
	}
	request.Header.Set("User-Agent", userAgent)
	response, err := d.rest.http.Do(request) // follows no redirect
	if err != nil {
		return nil, errors.New("discord: fetching a file failed")
	}
	switch {
	case response.StatusCode == http.StatusOK && response.ContentLength <= d.o.Download:
		return &bounded{response.Body, d.o.Download}, nil
	case response.StatusCode == http.StatusOK:
		err = platform.ErrTooLarge
	case response.StatusCode == http.StatusNotFound, response.StatusCode == http.StatusForbidden:
		err = platform.ErrGone
	default:
		err = fmt.Errorf("discord: fetching a file: status %d", response.StatusCode)
	}
	response.Body.Close()
	return nil, err
}

// bounded is a file that may not be longer than was said.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, platform.ErrTooLarge
	}
	return n, err
}
