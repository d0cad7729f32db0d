package telegram

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/go-telegram/bot/models"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// event converts an update, once it is known who the bot is. It returns false for one that does not concern the
// bridge.
func (t *reader) event(u *models.Update) (platform.Event, bool) {
	e := platform.Event{ID: strconv.FormatInt(u.ID, 10), Platform: Name}
	if u.Message != nil {
		t.numbers.note(groupOf(u.Message.Chat.ID), u.Message.ID)
	}
	switch {
	case u.CallbackQuery != nil:
		return pressed(e, u.CallbackQuery)
	case u.InlineQuery != nil:
		return queried(e, u.InlineQuery)
	case u.PreCheckoutQuery != nil:
		return checkout(e, u.PreCheckoutQuery)
	case u.Message != nil && u.Message.SuccessfulPayment != nil:
		return paid(e, u.Message)
	case u.Message != nil && (u.Message.MigrateToChatID != 0 || u.Message.MigrateFromChatID != 0):
		return moved(e, u.Message)
	case u.Message != nil:
		e.Kind = platform.Said
		return t.said(e, u.Message)
	case u.EditedMessage != nil:
		e.Kind = platform.Edited
		return t.said(e, u.EditedMessage)
	case u.MyChatMember != nil:
		return left(e, u.MyChatMember)
	}
	return e, false
}

// left converts a change of what the bot is in a chat. Being let in is no event: people
// who want something say so.
func left(e platform.Event, m *models.ChatMemberUpdated) (platform.Event, bool) {
	e.Kind, e.User, e.At = platform.Left, user(&m.From), time.Unix(int64(m.Date), 0)
	e.Chat = platform.Chat{ID: strconv.FormatInt(m.Chat.ID, 10), Group: m.Chat.Type != models.ChatTypePrivate}
	return e, m.NewChatMember.Type == models.ChatMemberTypeLeft || m.NewChatMember.Type == models.ChatMemberTypeBanned
}

// moved converts the two service messages about a group that has become a supergroup: one
// is in the old group, one in the new. Either will do.
func moved(e platform.Event, m *models.Message) (platform.Event, bool) {
	from, to := m.Chat.ID, m.MigrateToChatID
	if to == 0 {
		from, to = m.MigrateFromChatID, m.Chat.ID
	}
	e.Kind, e.At, e.To = platform.Moved, time.Unix(int64(m.Date), 0), strconv.FormatInt(to, 10)
	e.Chat = platform.Chat{ID: strconv.FormatInt(from, 10), Group: true}
	return e, from != to
}

func pressed(e platform.Event, q *models.CallbackQuery) (platform.Event, bool) {
	e.Kind, e.User, e.Press, e.Data, e.At = platform.Pressed, user(&q.From), q.ID, q.Data, time.Now()
	switch {
	case q.Message.Message != nil:
		e.Chat, e.Message = chat(q.Message.Message), platform.Message{ID: strconv.Itoa(q.Message.Message.ID)}
	case q.Message.InaccessibleMessage != nil:
		old := q.Message.InaccessibleMessage
		e.Chat = platform.Chat{ID: strconv.FormatInt(old.Chat.ID, 10), Group: old.Chat.Type != models.ChatTypePrivate}
		e.Message.ID = strconv.Itoa(old.MessageID)
	default:
		return e, false
	}
	return e, true
}

func (t *reader) said(e platform.Event, m *models.Message) (platform.Event, bool) {
	// An administrator who hides behind the group writes in its name; Telegram gives a
	// bot as the author.
	anonymous := m.SenderChat != nil && m.SenderChat.ID == m.Chat.ID && m.Chat.Type != models.ChatTypePrivate
	if m.From == nil || m.From.IsBot && !anonymous {
		return e, false
	}
	e.Chat, e.User, e.Message, e.At = chat(m), user(m.From), message(m), time.Unix(int64(m.Date), 0)
	if anonymous {
		e.User = platform.User{ID: e.Chat.ID, Name: m.SenderChat.Title}
	}
	if m.ReplyToMessage != nil {
		to := message(m.ReplyToMessage)
		e.Message.ReplyTo = &to
	}
	text, ours := t.address(e.Message.Text)
	if !ours {
		return e, false
	}
	e.Message.Text = text
	if rest, found := t.mentioned(text); found && e.Chat.Group {
		e.Message.Text, e.Addressed = rest, true
	}
	// A bot that reads a whole group keeps nothing that is not addressed to it.
	toUs := m.ReplyToMessage != nil && t.isMe(m.ReplyToMessage.From)
	if e.Chat.Group && !toUs && !e.Addressed && !strings.HasPrefix(text, "/") {
		return e, false
	}
	return e, e.Message.Text != "" || len(e.Message.Files) > 0
}

// isMe reports whether somebody is this bot.
func (t *reader) isMe(u *models.User) bool {
	return u != nil && u.IsBot && strings.EqualFold(t.self.Load().Username, u.Username)
}

// mentioned removes "@botname" from a text; false if it is not there.
func (t *reader) mentioned(text string) (rest string, found bool) {
	if strings.HasPrefix(text, "/") {
		return text, false
	}
	words, name := strings.Fields(text), "@"+t.self.Load().Username
	for i, word := range words {
		if strings.EqualFold(strings.TrimRight(word, ",:;.!?"), name) {
			return strings.Join(append(words[:i:i], words[i+1:]...), " "), true
		}
	}
	return text, false
}

// address removes "@botname" from a command. It returns false for a command to
// another bot.
func (t *reader) address(text string) (string, bool) {
	if !strings.HasPrefix(text, "/") {
		return text, true
	}
	end := strings.IndexAny(text, " \n\t")
	if end < 0 {
		end = len(text)
	}
	command, name, found := strings.Cut(text[:end], "@")
	if !found {
		return text, true
	}
	if !strings.EqualFold(t.self.Load().Username, name) {
		return text, false
	}
	return command + text[end:], true
}

func chat(m *models.Message) platform.Chat {
	c := platform.Chat{ID: strconv.FormatInt(m.Chat.ID, 10), Group: m.Chat.Type != models.ChatTypePrivate}
	if m.IsTopicMessage && m.MessageThreadID != 0 {
		c.Topic = strconv.Itoa(m.MessageThreadID)
	}
	return c
}

func user(u *models.User) platform.User {
	return platform.User{
		ID: strconv.FormatInt(u.ID, 10), Name: strings.TrimSpace(u.FirstName + " " + u.LastName), Language: u.LanguageCode,
	}
}

func message(m *models.Message) platform.Message {
	out := platform.Message{ID: strconv.Itoa(m.ID), Text: m.Text, Album: m.MediaGroupID}
	out.Text = cmp.Or(out.Text, m.Caption)
	if n := len(m.Photo); n > 0 {
		// The last one is the largest.
		photo := m.Photo[n-1]
		out.Files = append(out.Files, platform.File{ID: photo.FileID, Name: "photo.jpg", Type: "image/jpeg", Size: int64(photo.FileSize)})
	}
	if d := m.Document; d != nil {
		out.Files = append(out.Files, platform.File{ID: d.FileID, Name: d.FileName, Type: d.MimeType, Size: d.FileSize})
	}
	if v := m.Video; v != nil {
		out.Files = append(out.Files, platform.File{ID: v.FileID, Name: "video.mp4", Type: v.MimeType, Size: v.FileSize})
	}
	if v := m.Voice; v != nil {
		out.Files = append(out.Files, platform.File{ID: v.FileID, Name: "voice.ogg", Type: platform.Voice, Size: v.FileSize})
	}
	if v := m.VideoNote; v != nil {
		out.Files = append(out.Files, platform.File{ID: v.FileID, Name: "note.mp4", Type: platform.Voice, Size: int64(v.FileSize)})
	}
	if m.Sticker != nil {
		out.Files = append(out.Files, platform.File{Type: platform.Sticker})
	}
	if a := m.Audio; a != nil {
		out.Files = append(out.Files, platform.File{ID: a.FileID, Name: a.FileName, Type: a.MimeType, Size: a.FileSize})
	}
	return out
}
