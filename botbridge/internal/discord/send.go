package discord

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/disgoorg/disgo/discord"
	"github.com/disgoorg/snowflake/v2"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// message is what is read of a message that Discord returns.
type message struct {
	ID    string `json:"id"`
	Flags int    `json:"flags"`
}

// Send implements platform.Platform.
func (d *sender) Send(ctx context.Context, to platform.Chat, p platform.Post) ([]string, error) {
	if p.Private && p.Press != "" {
		if id, err := d.whisper(ctx, p); err == nil || !dead(err) {
			return ids(id, p), err
		}
	}
	if at, ok := strings.CutPrefix(p.ReplyTo, ofAnswer); ok && isID(at) {
		id, done, err := d.reply(ctx, to, at, p)
		if done || err != nil {
			return ids(id, p), err
		}
	}
	return d.post(ctx, to, p)
}

// ids returns the id of the message of each file; all files are in one.
func ids(id string, p platform.Post) (list []string) {
	if id == "" {
		return nil
	}
	for range max(1, len(p.Files)) {
		list = append(list, id)
	}
	return list
}

// reply puts a post in the place of a deferred answer. It returns false if another post
// has replaced that, or its token has ended.
func (d *sender) reply(ctx context.Context, to platform.Chat, at string, p platform.Post) (id string, done bool, err error) {
	a, ok, err := d.answers.find(ctx, at)
	if err != nil || !ok {
		return "", false, err
	}
	if !a.Waiting && a.Taken != p.ID {
		if p.Private && a.Private && a.alive(time.Now()) {
			return d.replyMore(ctx, at, a, p)
		}
		return "", false, nil
	}
	if !a.alive(time.Now()) {
		return d.replyLate(ctx, to, at, a, p)
	}
	me, err := d.whoami(ctx)
	if err != nil {
		return "", false, err
	}
	if p.Private && !a.Private {
		// Everybody sees "thinking…". It goes, and only its author sees the rest.
		err = d.original(ctx, http.MethodDelete, me, a.Token, nil, nil, nil)
		if err == nil || errors.Is(err, platform.ErrGone) && !dead(err) {
			a.Waiting = false
			if err := d.answers.put(ctx, at, a); err != nil {
				return "", false, err
			}
			id, err = d.follow(ctx, me, a.Token, p)
		}
	} else {
		var m message
		if err = d.original(ctx, http.MethodPatch, me, a.Token, update(p), p.Files, &m); err == nil {
			id = m.ID
			a.Waiting, a.Taken = false, p.ID
			err = d.answers.put(ctx, at, a)
		}
	}
	if dead(err) {
		d.answers.kill(at)
		return d.replyLate(ctx, to, at, a, p)
	}
	return id, true, err
}

// replyMore posts what follows an answer that only one person sees, for the same person.
func (d *sender) replyMore(ctx context.Context, at string, a answer, p platform.Post) (id string, done bool, err error) {
	me, err := d.whoami(ctx)
	if err != nil {
		return "", false, err
	}
	id, err = d.follow(ctx, me, a.Token, p)
	if dead(err) {
		d.answers.kill(at)
		return "", false, nil
	}
	return id, true, err
}

// replyLate does what is left to do when the token has ended: a message that the post
// has replaced is changed as any other, and one that says "thinking…" goes. Perhaps the
// bridge was killed right after it had replaced that; then it goes all the same, because
// what comes now says more.
func (d *sender) replyLate(ctx context.Context, to platform.Chat, at string, a answer, p platform.Post) (id string, done bool, err error) {
	if a.Taken != "" && a.Taken == p.ID {
		switch err := d.edit(ctx, to, at, p); {
		case err == nil:
			return at, true, nil
		case !platform.Permanent(err):
			return "", true, err
		}
		return "", false, nil
	}
	err = d.remove(ctx, to, at)
	if err != nil && !platform.Permanent(err) {
		return "", true, err
	}
	a.Waiting = false
	return "", false, d.answers.put(ctx, at, a)
}

// dead reports whether a call failed because the token of an interaction has ended.
func dead(err error) bool {
	switch codeOf(err) {
	case codeUnknownWebhook, codeWebhookToken, codeUnknownInteraction:
		return true
	}
	return false
}

// original calls the message that answers an interaction, or has its button.
func (d *account) original(ctx context.Context, method string, me identity, token string, body any, files []platform.Attachment, into any) error {
	return d.rest.do(ctx, call{
		method: method, path: "/webhooks/" + me.application + "/" + token + "/messages/@original", open: true, body: body, files: files,
	}, into)
}

// whisper answers the press of a button so that nobody else sees it.
func (d *account) whisper(ctx context.Context, p platform.Post) (string, error) {
	pressed, ok := parsePress(p.Press)
	if !ok {
		return "", platform.ErrRefused
	}
	me, err := d.whoami(ctx)
	if err != nil {
		return "", err
	}
	return d.follow(ctx, me, pressed.token, p)
}

// follow posts what only the author of an interaction sees.
func (d *account) follow(ctx context.Context, me identity, token string, p platform.Post) (string, error) {
	body := create(p)
	body.Flags = discord.MessageFlagEphemeral
	// A webhook has no nonces. Somebody who is told something twice is not harmed.
	body.Nonce, body.EnforceNonce, body.Reference = "", false, nil
	var m message
	err := d.rest.do(ctx, call{
		method: http.MethodPost, path: "/webhooks/" + me.application + "/" + token + "?wait=true", open: true, body: body, files: p.Files,
	}, &m)
	return m.ID, err
}

// post sends an ordinary message. The same post again is no second message while
// Discord remembers its nonce.
func (d *sender) post(ctx context.Context, to platform.Chat, p platform.Post) ([]string, error) {
	if !isID(to.ID) {
		return nil, platform.ErrRefused
	}
	var m message
	err := d.rest.do(ctx, call{
		method: http.MethodPost, path: "/channels/" + to.ID + "/messages", body: create(p), files: p.Files,
	}, &m)
	if err != nil {
		return nil, err
	}
	return ids(m.ID, p), nil
}

// Edit implements platform.Platform.
func (d *sender) Edit(ctx context.Context, to platform.Chat, id string, p platform.Post) error {
	if !isID(to.ID) || !isID(id) {
		return platform.ErrRefused
	}
	a, ok, err := d.answers.find(ctx, id)
	if err != nil {
		return err
	}
	if ok && a.alive(time.Now()) {
		me, err := d.whoami(ctx)
		if err != nil {
			return err
		}
		if err := d.original(ctx, http.MethodPatch, me, a.Token, update(p), p.Files, nil); !dead(err) {
			return err
		}
		d.answers.kill(id)
	}
	return d.edit(ctx, to, id, p)
}

// edit changes an ordinary message.
func (d *sender) edit(ctx context.Context, to platform.Chat, id string, p platform.Post) error {
	return d.rest.do(ctx, call{
		method: http.MethodPatch, path: "/channels/" + to.ID + "/messages/" + id, limit: "PATCH /channels/" + to.ID,
		body: update(p), files: p.Files,
	}, nil)
}

// remove deletes an ordinary message.
func (d *sender) remove(ctx context.Context, to platform.Chat, id string) error {
	return d.rest.do(ctx, call{
		method: http.MethodDelete, path: "/channels/" + to.ID + "/messages/" + id, limit: "DELETE /channels/" + to.ID,
	}, nil)
}

// Delete implements platform.Platform.
func (d *sender) Delete(ctx context.Context, to platform.Chat, id string) error {
	if !isID(to.ID) || !isID(id) {
		return platform.ErrRefused
	}
	a, ok, err := d.answers.find(ctx, id)
	if err != nil {
		return err
	}
	if ok && a.alive(time.Now()) {
		var me identity
		if me, err = d.whoami(ctx); err != nil {
			return err
		}
		err = d.original(ctx, http.MethodDelete, me, a.Token, nil, nil, nil)
	}
	if !ok || !a.alive(time.Now()) || dead(err) {
		err = d.remove(ctx, to, id)
	}
	if errors.Is(err, platform.ErrGone) {
		return nil
	}
	return err
}

// Answer implements platform.Platform. That a button was pressed was confirmed at once;
// only words are left to be said.
func (d *sender) Answer(ctx context.Context, pressed, text string) error {
	if text == "" {
		return nil
	}
	_, err := d.whisper(ctx, platform.Post{Text: text, Press: pressed})
	return err
}

// nobody lets no text notify anybody: prompts may contain @everyone. The author of the
// message that is replied to is told, as always.
func nobody() *discord.AllowedMentions {
	return &discord.AllowedMentions{Parse: []discord.AllowedMentionType{}, Roles: []snowflake.ID{}, Users: []snowflake.ID{}, RepliedUser: true}
}

func create(p platform.Post) messageCreate {
	m := messageCreate{
		Content: plain(p.Text), AllowedMentions: nobody(), Components: components(p.Buttons), Attachments: attachments(p.Files),
		Flags: discord.MessageFlagSuppressEmbeds,
	}
	if p.ID != "" {
		m.Nonce, m.EnforceNonce = nonceOf(p.ID), true
	}
	if at := strings.TrimPrefix(p.ReplyTo, ofAnswer); isID(at) {
		m.Reference = &reference{MessageID: at}
	}
	return m
}

// update replaces text and buttons, and the files if there are any.
func update(p platform.Post) messageUpdate {
	m := messageUpdate{Content: plain(p.Text), AllowedMentions: nobody(), Components: components(p.Buttons), Attachments: attachments(p.Files)}
	if m.Components == nil {
		m.Components = []discord.ContainerComponent{} // otherwise those of before stay
	}
	return m
}

// attachments names the files of a call, which are its other parts.
func attachments(files []platform.Attachment) (list []attachment) {
	for i, f := range files {
		list = append(list, attachment{ID: strconv.Itoa(i), Filename: fileName(f)})
	}
	return list
}

// What disgo's types of the same name cannot say: that a missing message is no error,
// and the names of new files in an edit.
type (
	messageCreate struct {
		Content         string                       `json:"content"`
		Nonce           string                       `json:"nonce,omitempty"`
		EnforceNonce    bool                         `json:"enforce_nonce,omitempty"`
		AllowedMentions *discord.AllowedMentions     `json:"allowed_mentions"`
		Components      []discord.ContainerComponent `json:"components,omitempty"`
		Attachments     []attachment                 `json:"attachments,omitempty"`
		Reference       *reference                   `json:"message_reference,omitempty"`
		Flags           discord.MessageFlags         `json:"flags,omitempty"`
	}
	messageUpdate struct {
		Content         string                       `json:"content"`
		AllowedMentions *discord.AllowedMentions     `json:"allowed_mentions"`
		Components      []discord.ContainerComponent `json:"components"`
		Attachments     []attachment                 `json:"attachments,omitempty"`
	}
	attachment struct {
		ID       string `json:"id"`
		Filename string `json:"filename"`
	}
	reference struct {
		MessageID       string `json:"message_id"`
		FailIfNotExists bool   `json:"fail_if_not_exists"`
	}
)

// nonceOf makes a nonce of the id of a post.
func nonceOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:maxNonce-1]
}
