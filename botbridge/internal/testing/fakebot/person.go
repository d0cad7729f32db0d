package fakebot

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Person is somebody who writes to the bot. A chat with an id below zero is a
// group. Any other chat is the person's own.
type Person struct {
	f        *Fake
	ID       int64
	Chat     int64
	Language string
}

// Person returns somebody who writes to the bot in a private chat.
func (f *Fake) Person(id int64, language string) *Person {
	return &Person{f: f, ID: id, Chat: id, Language: language}
}

// In returns the same person in a group.
func (p *Person) In(group int64) *Person {
	return &Person{f: p.f, ID: p.ID, Chat: group, Language: p.Language}
}

func (p *Person) json() map[string]any {
	return map[string]any{"id": p.ID, "is_bot": false, "first_name": "Person " + strconv.FormatInt(p.ID, 10), "language_code": p.Language}
}

// Draft is a message that a person sends.
type Draft struct {
	Text    string
	ReplyTo int
	Topic   int
	// Photo is a picture. The text becomes its caption.
	Photo []byte
	// File is an unchanged file of a type such as "image/png". Size is what it is said to have,
	// if that is more than its bytes.
	File []byte
	Name string
	Type string
	Size int64
	// Voice is a voice message.
	Voice []byte
	// Album is the same for all pictures of one album.
	Album string
}

// Say writes a message and returns its id and the id of the update.
func (p *Person) Say(text string) (message int, update int64) { return p.Send(Draft{Text: text}) }

// Mutter writes something that the bot is not told of, as in a group that shows it only what it
// is asked.
func (p *Person) Mutter(text string) (message int) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	m := p.f.newMessage(p.Chat)
	m.Text = text
	return m.ID
}

// Send sends a message.
func (p *Person) Send(d Draft) (message int, update int64) {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.newMessage(p.Chat)
	m.Text, m.ReplyTo, m.Topic, m.Album = d.Text, d.ReplyTo, d.Topic, d.Album
	f.topics[topic{p.Chat, d.Topic}] = true
	body := f.json(m)
	body["from"] = p.json()
	switch {
	case d.Photo != nil:
		id := sent(f.chats, m, "photo", "photo", d.Photo)
		f.files[photoID(m)] = d.Photo
		if m.File.Width == 0 { // it only stands for a picture
			m.File.Width, m.File.Height = 64, 64
		}
		size := func(id string, width, height int, bytes int64) map[string]any {
			return map[string]any{"file_id": id, "file_unique_id": id, "width": width, "height": height, "file_size": bytes}
		}
		f.files[id+"-small"] = []byte("a thumbnail")
		body["photo"] = []any{size(id+"-small", 8, 8, 11), size(id, m.File.Width, m.File.Height, m.File.Size)}
	case d.File != nil:
		id := sent(f.chats, m, "document", "file", d.File)
		m.File.Size = max(m.File.Size, d.Size)
		f.sizes[id] = m.File.Size
		body["document"] = map[string]any{"file_id": id, "file_unique_id": id, "file_name": d.Name, "mime_type": d.Type, "file_size": m.File.Size}
	case d.Voice != nil:
		id := sent(f.chats, m, "voice", "voice", d.Voice)
		body["voice"] = map[string]any{"file_id": id, "file_unique_id": id, "duration": 3, "mime_type": "audio/ogg", "file_size": m.File.Size}
	}
	if m.Kind != "text" {
		delete(body, "text")
		body["caption"] = d.Text
	}
	if d.Album != "" {
		body["media_group_id"] = d.Album
	}
	if old := f.find(p.Chat, d.ReplyTo); old != nil {
		to := f.json(old)
		if old.FromBot {
			to["from"] = map[string]any{"id": 4242, "is_bot": true, "first_name": "Comfy", "username": Username}
		} else {
			to["from"] = p.json()
		}
		body["reply_to_message"] = to
	}
	f.changedNow()
	return m.ID, f.push("message", body)
}

// sent keeps a file that a person sends. The caller holds mu.
func sent(f *chats, m *Message, kind, name string, data []byte) (id string) {
	f.fileID++
	id = fmt.Sprintf("%s%d", name, f.fileID)
	m.Kind, m.File = kind, fileOf("", data)
	f.files[id] = data
	return id
}

// Edit changes one of the person's messages.
func (p *Person) Edit(message int, text string) {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.find(p.Chat, message)
	m.Text = text
	body := f.json(m)
	body["from"], body["edit_date"] = p.json(), time.Now().Unix()
	f.push("edited_message", body)
}

// Press presses a button and returns the id under which it is answered.
func (p *Person) Press(message int, data string) string {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fileID++
	id := fmt.Sprintf("press%d", f.fileID)
	f.presses[id] = time.Now()
	query := map[string]any{"id": id, "from": p.json(), "chat_instance": "1", "data": data}
	if m := f.find(p.Chat, message); m != nil {
		body := f.json(m)
		query["message"] = body
	} else {
		query["message"] = map[string]any{"message_id": message, "date": 0, "chat": chatJSON(p.Chat)}
	}
	f.push("callback_query", query)
	return id
}

// Sees returns the messages of the chat that are not deleted, in order.
func (p *Person) Sees() []Message {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	var list []Message
	for _, m := range p.f.messages[p.Chat] {
		if !m.Deleted {
			list = append(list, *m)
		}
	}
	return list
}

// All returns all messages that were ever in the chat, in order.
func (p *Person) All() []Message {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	list := make([]Message, 0, len(p.f.messages[p.Chat]))
	for _, m := range p.f.messages[p.Chat] {
		list = append(list, *m)
	}
	return list
}

// Answers returns the answers to pressed buttons.
func (f *Fake) Answers() []Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Answer(nil), f.answers...)
}

// Wait waits until the chat that the person sees meets a condition, and returns
// its messages.
func (p *Person) Wait(ctx context.Context, until func([]Message) bool) ([]Message, error) {
	for {
		p.f.mu.Lock()
		changed := p.f.changed
		p.f.mu.Unlock()
		list := p.Sees()
		if until(list) {
			return list, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return list, ctx.Err()
		}
	}
}

// Age makes all messages of a chat too old to be removed by the bot.
func (f *chats) Age(chat int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.messages[chat] {
		m.Old = true
	}
}

// Moderate makes somebody an administrator of all groups.
func (f *chats) Moderate(user int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moderators[user] = true
}

// Block sets whether a chat has blocked the bot, and tells the bot, as Telegram does.
func (f *chats) Block(chat int64, blocked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blocked[chat] = blocked
	before, after := "member", "kicked"
	if !blocked {
		before, after = after, before
	}
	me := map[string]any{"id": 4242, "is_bot": true, "first_name": "Comfy", "username": Username}
	member := func(status string) map[string]any {
		m := map[string]any{"status": status, "user": me}
		if status == "kicked" {
			m["until_date"] = 0
		}
		return m
	}
	f.push("my_chat_member", map[string]any{
		"chat": chatJSON(chat), "from": (&Person{ID: chat}).json(), "date": time.Now().Unix(),
		"old_chat_member": member(before), "new_chat_member": member(after),
	})
}

// Restrict makes a group refuse what the bot sends: the text is Telegram's. One about rights is
// about the kind of files that it names.
func (f *chats) Restrict(chat int64, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quiet[chat] = text
}

// restricted returns why a message is refused, nil if it is not.
func (f *chats) restricted(chat int64, kind string) *problem {
	text := f.quiet[chat]
	about := strings.Contains(text, "rights to send ") || strings.Contains(text, "CHAT_SEND_")
	name := kind + "s"
	if kind == "text" {
		name = "plain"
	}
	if text == "" || about && !strings.Contains(strings.ToLower(text), name) {
		return nil
	}
	return refuse("%s", text)
}

// Find returns the last message that fits.
func Find(list []Message, fits func(Message) bool) (Message, bool) {
	for _, l := range slices.Backward(list) {
		if fits(l) {
			return l, true
		}
	}
	return Message{}, false
}

// json returns a message as the Bot API shows it.
func (f *chats) json(m *Message) map[string]any {
	body := map[string]any{"message_id": m.ID, "date": time.Now().Unix(), "chat": chatJSON(m.Chat)}
	if m.Topic != 0 {
		body["message_thread_id"], body["is_topic_message"] = m.Topic, true
	}
	switch m.Kind {
	case "text":
		body["text"] = m.Text
	case "photo":
		id := photoID(m)
		body["caption"] = m.Text
		body["photo"] = []any{map[string]any{
			"file_id": id, "file_unique_id": id, "width": m.File.Width, "height": m.File.Height, "file_size": m.File.Size,
		}}
	case "invoice":
		body["invoice"] = map[string]any{
			"title": m.Invoice.Title, "description": m.Invoice.Description, "start_parameter": m.Invoice.Start, "currency": "XTR", "total_amount": m.Invoice.Stars,
		}
	default:
		body["caption"] = m.Text
	}
	return body
}

// Photo returns the picture of a message, nil if it is none or is larger than a megabyte.
func (f *chats) Photo(m Message) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.files[photoID(&m)]
}

func photoID(m *Message) string { return m.File.Hash + "-" + strconv.Itoa(m.ID) }

func chatJSON(id int64) map[string]any {
	if id < groupsBelow && id > supergroupsBelow {
		return map[string]any{"id": id, "type": "group", "title": "Group"}
	}
	if id < groupsBelow {
		return map[string]any{"id": id, "type": "supergroup", "title": "Group"}
	}
	return map[string]any{"id": id, "type": "private", "first_name": "Person"}
}
