package fakebot

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
)

// Message is a message as people see it.
type Message struct {
	ID      int
	Chat    int64
	FromBot bool
	Text    string
	// Kind is text, photo, video, animation, audio, document, invoice or payment.
	Kind    string
	Invoice *Invoice
	File    File
	Album   string
	ReplyTo int
	Topic   int
	Buttons []Button
	// ParseMode is the parse_mode that the bot asked for.
	ParseMode string
	// Edits counts how often the message was changed.
	Edits   int
	Deleted bool
	// Old means that the bot may not remove it any more.
	Old bool
}

// Button is a button under a message.
type Button struct {
	Label string `json:"text"`
	Data  string `json:"callback_data"`
	URL   string `json:"url"`
	// Share is what the button types after the bot's name in another chat.
	Share string `json:"switch_inline_query"`
	// Row is in which row it is, counted from 0.
	Row int `json:"-"`
}

const (
	maxText     = 4096
	maxCaption  = 1024
	maxPhoto    = 10 << 20
	maxFile     = 50 << 20
	maxDownload = 20 << 20
	maxLocal    = 2000 << 20
	maxData     = 64
	maxAlbum    = 10
	groupsBelow = 0 // chat ids below are groups
)

// do executes a call.
func (f *Fake) do(c *call) (any, *problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[c.method]++
	switch c.method {
	case "getMe":
		return map[string]any{"id": 4242, "is_bot": true, "first_name": "Comfy", "username": Username, "supports_inline_queries": f.o.Inline}, nil
	case "setMyCommands", "deleteMyCommands":
		return f.setMenu(c)
	case "setWebhook":
		f.setWebhook(c)
		return true, nil
	case "deleteWebhook":
		f.hook = hook{}
		return true, nil
	case "getFile":
		data, ok := f.files[c.params["file_id"]]
		if !ok {
			return nil, refuse("wrong file_id or the file is temporarily unavailable")
		}
		if f.o.Local == "" && max(f.sizes[c.params["file_id"]], int64(len(data))) > maxDownload {
			return nil, refuse("file is too big")
		}
		if f.o.Local != "" {
			path := filepath.Join(f.o.Local, c.params["file_id"])
			if err := os.WriteFile(path, data, 0o600); err != nil {
				return nil, refuse("%v", err)
			}
			return map[string]any{"file_id": c.params["file_id"], "file_path": path}, nil
		}
		return map[string]any{"file_id": c.params["file_id"], "file_path": c.params["file_id"]}, nil
	case "getChat":
		chat := c.int64("chat_id")
		may := map[string]any{}
		for _, kind := range []string{"photo", "video", "audio", "document"} {
			may["can_send_"+kind+"s"] = f.restricted(chat, kind) == nil
		}
		return map[string]any{"id": chat, "type": "supergroup", "permissions": may}, nil
	case "getChatMember":
		if p := f.movedAway(c.int64("chat_id")); p != nil {
			return nil, p
		}
		status := "member"
		if f.moderators[c.int64("user_id")] {
			status = "administrator"
		}
		return map[string]any{"status": status, "user": map[string]any{"id": c.int64("user_id"), "first_name": "x"}, "can_delete_messages": true}, nil
	case "answerCallbackQuery":
		id := c.params["callback_query_id"]
		if at, known := f.presses[id]; !known || time.Since(at) > pressKeep {
			return nil, refuse("query is too old and response timeout expired or query ID is invalid")
		}
		delete(f.presses, id)
		f.answers = append(f.answers, Answer{id, c.params["text"]})
		f.changedNow()
		return true, nil
	}
	switch c.method {
	case "answerInlineQuery":
		return f.queries.answer(c)
	case "answerPreCheckoutQuery":
		return f.answerCheckout(c)
	case "refundStarPayment":
		return f.refund(c)
	}
	chat := c.int64("chat_id")
	if p := f.movedAway(chat); p != nil {
		return nil, p
	}
	if f.blocked[chat] {
		return nil, &problem{status: http.StatusForbidden, text: "Forbidden: bot was blocked by the user"}
	}
	if chat == 0 {
		return nil, refuse("chat not found")
	}
	if c.method == "sendChatAction" {
		return f.chatAction(c)
	}
	counts := f.pace.allow
	if m := f.find(chat, c.int("message_id")); strings.HasPrefix(c.method, "editMessage") && (m == nil || m.Deleted || !m.FromBot) {
		// The Bot API server refuses these itself; they never come to be edits.
		counts = func(_ int64, now time.Time, scale float64) bool { return f.pace.allowCall(now, scale) }
	}
	if c.method != "deleteMessage" && !counts(chat, time.Now(), f.o.Scale) && f.o.Enforce {
		return nil, &problem{status: http.StatusTooManyRequests}
	}
	kinds := map[string]string{
		"sendMessage": "text", "sendPhoto": "photo", "sendVideo": "video", "sendAnimation": "animation", "sendAudio": "audio",
		"sendDocument": "document",
	}
	defer f.changedNow()
	switch {
	case kinds[c.method] != "":
		return f.send(c, chat, kinds[c.method])
	case c.method == "sendInvoice":
		return f.sendInvoice(c, chat)
	case c.method == "copyMessage":
		return f.copyMessage(c, chat)
	case c.method == "sendMediaGroup":
		return f.sendAlbum(c, chat)
	case strings.HasPrefix(c.method, "editMessage"):
		return f.edit(c, chat)
	case c.method == "deleteMessage":
		m := f.find(chat, c.int("message_id"))
		if m == nil || m.Deleted {
			return nil, refuse("message to delete not found")
		}
		if m.Old {
			return nil, refuse("message can't be deleted for everyone")
		}
		m.Deleted = true
		return true, nil
	}
	return nil, &problem{status: http.StatusNotFound, text: "Not Found: method not found"}
}

// chatAction holds an action against the documentation. It is no message; it counts as a
// call like any other.
func (f *Fake) chatAction(c *call) (any, *problem) {
	if !f.pace.allowCall(time.Now(), f.o.Scale) && f.o.Enforce {
		return nil, &problem{status: http.StatusTooManyRequests}
	}
	switch c.params["action"] {
	case "typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice", "upload_document", "choose_sticker", "find_location":
		return true, nil
	}
	return nil, refuse("wrong parameter action in request")
}

func (f *chats) find(chat int64, id int) *Message {
	for _, m := range f.messages[chat] {
		if m.ID == id {
			return m
		}
	}
	return nil
}

func (f *chats) newMessage(chat int64) *Message {
	space := int64(0)
	if chat < supergroupsBelow {
		space = chat
	}
	f.nextID[space]++
	m := &Message{ID: f.nextID[space], Chat: chat, Kind: "text"}
	f.messages[chat] = append(f.messages[chat], m)
	return m
}

func (f *chats) send(c *call, chat int64, kind string) (any, *problem) {
	text, limit := trim(c.params["text"]), maxText
	if kind != "text" {
		text, limit = trim(c.params["caption"]), maxCaption
	} else if text == "" {
		return nil, refuse("message text is empty")
	}
	if units(text) > limit {
		return nil, refuse("message is too long")
	}
	buttons, p := buttonsOf(c)
	if p != nil {
		return nil, p
	}
	file := c.files[kind]
	reply, p := replyOf(f, c, chat)
	if p := cmp.Or(p, f.restricted(chat, kind), noTopic(f, c, chat), checkFile(f, kind, file)); p != nil {
		return nil, p
	}
	if kind == "video" {
		file.Width, file.Height, file.Seconds = c.int("width"), c.int("height"), c.int("duration")
	}
	m := f.newMessage(chat)
	m.FromBot, m.Text, m.Kind, m.File, m.Buttons, m.Topic = true, text, kind, file, buttons, c.int("message_thread_id")
	m.ParseMode = c.params["parse_mode"]
	m.ReplyTo = reply
	f.keep(m, c)
	return f.json(m), nil
}

// keep keeps a picture from the bot, so that people can answer to it.
func (f *chats) keep(m *Message, c *call) {
	if data := c.small[m.File.Hash]; data != nil && m.Kind == "photo" {
		f.files[photoID(m)] = data
	}
}

func checkFile(f *chats, kind string, file File) *problem {
	most := int64(maxFile)
	if f.o.Local != "" {
		most = maxLocal
	}
	switch {
	case kind == "text":
		return nil
	case file.Size == 0:
		return refuse("there is no %s in the request", kind)
	case kind == "photo" && (file.Size > maxPhoto || file.Width == 0):
		return refuse("IMAGE_PROCESS_FAILED")
	case kind == "photo" && (file.Width+file.Height > 10000 || file.Width > 20*file.Height || file.Height > 20*file.Width):
		return refuse("PHOTO_INVALID_DIMENSIONS")
	case file.Size > most:
		return &problem{status: http.StatusRequestEntityTooLarge, text: "Request Entity Too Large"}
	}
	return nil
}

func buttonsOf(c *call) ([]Button, *problem) {
	var markup struct {
		Rows [][]Button `json:"inline_keyboard"`
	}
	if text := c.params["reply_markup"]; text != "" {
		if err := json.Unmarshal([]byte(text), &markup); err != nil {
			return nil, refuse("can't parse reply keyboard markup JSON object")
		}
	}
	var all []Button
	for n, row := range markup.Rows {
		for _, b := range row {
			b.Row = n
			switch u, err := url.Parse(b.URL); {
			case b.URL != "" && (err != nil || !strings.Contains(u.Hostname(), ".") || u.Scheme != "http" && u.Scheme != "https"):
				return nil, refuse("inline keyboard button URL '%s' is invalid: Wrong HTTP URL", b.URL)
			case b.URL != "" && b.Data != "", b.Share != "" && b.URL+b.Data != "":
				return nil, refuse("can't parse inline keyboard button: exactly one of the optional fields must be used")
			case b.URL+b.Data+b.Share == "", len(b.Data) > maxData, b.Label == "":
				return nil, refuse("BUTTON_DATA_INVALID")
			}
			all = append(all, b)
		}
	}
	return all, nil
}

func (f *chats) sendAlbum(c *call, chat int64) (any, *problem) {
	var media []struct{ Type, Media, Caption string }
	if err := json.Unmarshal([]byte(c.params["media"]), &media); err != nil || len(media) < 2 || len(media) > maxAlbum {
		return nil, refuse("wrong number of media in the album")
	}
	reply, p := replyOf(f, c, chat)
	if p := cmp.Or(p, noTopic(f, c, chat)); p != nil {
		return nil, p
	}
	for _, item := range media {
		switch {
		case item.Type == "animation":
			return nil, refuse("can't parse InputMedia: type \"animation\" can't be used in sendMediaGroup")
		case item.Type != media[0].Type && (item.Type == "document" || item.Type == "audio" || media[0].Type == "document" || media[0].Type == "audio"):
			return nil, refuse("%s can't be mixed with other media types", item.Type)
		}
		if p := cmp.Or(f.restricted(chat, item.Type), checkFile(f, item.Type, c.files[strings.TrimPrefix(item.Media, "attach://")])); p != nil {
			return nil, p
		}
	}
	var list []any
	album := ""
	for _, item := range media {
		m := f.newMessage(chat)
		if album == "" {
			album = "album" + string(rune('0'+m.ID%10)) + c.params["chat_id"]
		}
		m.FromBot, m.Text, m.Kind, m.Album, m.ReplyTo = true, trim(item.Caption), item.Type, album, reply
		m.File = c.files[strings.TrimPrefix(item.Media, "attach://")]
		f.keep(m, c)
		list = append(list, f.json(m))
	}
	return list, nil
}

func (f *chats) edit(c *call, chat int64) (any, *problem) {
	m := f.find(chat, c.int("message_id"))
	if m == nil || m.Deleted {
		return nil, refuse("message to edit not found")
	}
	if !m.FromBot {
		return nil, refuse("message can't be edited")
	}
	buttons, p := buttonsOf(c)
	if p != nil {
		return nil, p
	}
	text, file, kind := trim(c.params["text"]), m.File, m.Kind
	switch c.method {
	case "editMessageText":
		if m.Kind != "text" {
			return nil, refuse("there is no text in the message to edit")
		}
	case "editMessageCaption":
		if m.Kind == "text" {
			return nil, refuse("there is no caption in the message to edit")
		}
		text = trim(c.params["caption"])
	case "editMessageMedia":
		var media struct{ Type, Media, Caption string }
		if err := json.Unmarshal([]byte(c.params["media"]), &media); err != nil {
			return nil, refuse("can't parse media JSON object")
		}
		text, kind, file = trim(media.Caption), media.Type, c.files[strings.TrimPrefix(media.Media, "attach://")]
		if p := checkFile(f, kind, file); p != nil {
			return nil, p
		}
	}
	if units(text) > maxText || kind != "text" && units(text) > maxCaption {
		return nil, refuse("MESSAGE_TOO_LONG")
	}
	if text == m.Text && file == m.File && slices.Equal(buttons, m.Buttons) {
		return nil, refuse("message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message")
	}
	m.Text, m.File, m.Kind, m.Buttons = text, file, kind, buttons
	m.Edits++
	f.keep(m, c)
	return f.json(m), nil
}

func units(text string) int { return len(utf16.Encode([]rune(text))) }
