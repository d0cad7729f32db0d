package fakediscord

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
)

const (
	flagEphemeral = 1 << 6
	flagLoading   = 1 << 7
	// styleLink is the style of a button that opens a URL.
	styleLink = 5
)

// Message is a message as people see it.
type Message struct {
	ID, Channel string
	FromBot     bool
	// Author is the id of who wrote it, and Only the id of the only one who sees it, ""
	// for everybody.
	Author, Only string
	Text         string
	// Files are their names; their bytes are at the same place of Bytes.
	Files []string
	Bytes [][]byte
	// Buttons are all buttons, those of a menu too.
	Buttons []Button
	ReplyTo string
	// Thinking means that it is a deferred answer that says nothing yet, and Used that
	// it is an answer to a command.
	Thinking, Used bool
	Edits          int
	// Pings are who was notified.
	Pings []string

	nonce       string
	raw         string // what the bot has sent as the text, "" of others
	born        time.Time
	webhook     bool
	flags       int
	components  []any
	attachments []map[string]any
	edited      string
}

// Button is something to press. Menu is the custom id of the menu that contains it, ""
// for a button. One with a URL has no data.
type Button struct{ Label, Data, Menu, URL string }

// payload is the body of a call that makes or changes a message.
type payload struct {
	Content         *string          `json:"content"`
	Flags           int              `json:"flags"`
	Nonce           string           `json:"nonce"`
	EnforceNonce    bool             `json:"enforce_nonce"`
	Components      *[]any           `json:"components"`
	Attachments     []map[string]any `json:"attachments"`
	AllowedMentions *struct {
		Parse []string `json:"parse"`
	} `json:"allowed_mentions"`
	Choices []struct {
		Value string `json:"value"`
	} `json:"choices"`
	Reference *struct {
		Message string `json:"message_id"`
		Fail    *bool  `json:"fail_if_not_exists"`
	} `json:"message_reference"`
	files map[string]upload
}

type upload struct {
	name string
	data []byte
}

// apply changes a message as a payload says; the caller holds mu.
func (f *channels) apply(m *Message, p *payload) *refusal {
	if p.Content != nil {
		if n := len(utf16.Encode([]rune(*p.Content))); n > 2000 {
			return invalidForm("content: %d characters", n)
		}
		m.Text, m.raw = unescape(*p.Content), *p.Content
		m.Pings = nil
		if p.AllowedMentions == nil || slices.Contains(p.AllowedMentions.Parse, "everyone") {
			if strings.Contains(*p.Content, "@everyone") {
				m.Pings = append(m.Pings, "everyone")
			}
		}
	}
	if p.Components != nil {
		buttons, problem := buttonsOf(*p.Components)
		if problem != nil {
			return problem
		}
		m.Buttons, m.components = buttons, *p.Components
	}
	if len(p.files) > 10 {
		return invalidForm("files: %d", len(p.files))
	}
	if p.Attachments != nil || len(p.files) > 0 {
		named := func(id any) bool {
			return p.Attachments == nil || slices.ContainsFunc(p.Attachments, func(a map[string]any) bool { return a["id"] == id })
		}
		// Those of before stay, unless the call has a list without them.
		was := *m
		m.Files, m.Bytes, m.attachments = nil, nil, nil
		for i, a := range was.attachments {
			if named(a["id"]) {
				m.Files, m.Bytes, m.attachments = append(m.Files, was.Files[i]), append(m.Bytes, was.Bytes[i]), append(m.attachments, a)
			}
		}
		for i := range len(p.files) {
			u, ok := p.files[fmt.Sprintf("files[%d]", i)]
			if !ok || !named(fmt.Sprint(i)) || len(m.Files) == 10 {
				return invalidForm("attachments do not fit the files")
			}
			if len(u.data) > f.o.Upload {
				return refuse(http.StatusRequestEntityTooLarge, 40005, "Request entity too large")
			}
			m.Files, m.Bytes = append(m.Files, u.name), append(m.Bytes, u.data)
			m.attachments = append(m.attachments, f.store(m.Channel, u.name, "image/png", u.data))
		}
	}
	if m.Text == "" && len(m.Files) == 0 {
		return refuse(http.StatusBadRequest, 50006, "Cannot send an empty message")
	}
	m.Thinking = false
	m.flags &^= flagLoading
	return nil
}

// unescape shows a text as people see it: a backslash before a mark is not shown.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && strings.IndexByte("\\*_~`|>#-[]<@", text[i+1]) >= 0 {
			i++
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// store makes a file available and describes it; the caller holds mu.
func (f *channels) store(channel, name, kind string, data []byte) map[string]any {
	id := f.id()
	path := "/attachments/" + channel + "/" + id + "/" + name
	f.files[path] = data
	url := f.origin + path
	return map[string]any{
		"id": id, "filename": name, "size": len(data), "url": url, "proxy_url": url, "content_type": kind,
	}
}

// buttonsOf reads the components of a message.
func buttonsOf(rows []any) (buttons []Button, problem *refusal) {
	if len(rows) > 5 {
		return nil, invalidForm("components: %d rows", len(rows))
	}
	seen := map[string]bool{}
	for _, row := range rows {
		var r struct {
			Type       int `json:"type"`
			Components []struct {
				Type     int    `json:"type"`
				Style    int    `json:"style"`
				CustomID string `json:"custom_id"`
				Label    string `json:"label"`
				URL      string `json:"url"`
				Options  []struct{ Label, Value string }
			} `json:"components"`
		}
		data, err := json.Marshal(row)
		if err != nil || json.Unmarshal(data, &r) != nil || r.Type != 1 || len(r.Components) == 0 {
			return nil, invalidForm("components: not a row")
		}
		for _, c := range r.Components {
			switch {
			case c.Type == 2 && len(r.Components) > 5, c.Type == 3 && (len(r.Components) > 1 || len(c.Options) > 25 || len(c.Options) == 0):
				return nil, invalidForm("components: too many in a row")
			case c.Type == 2 && c.Style == styleLink:
				if u, err := url.Parse(c.URL); err != nil || u.Host == "" || c.CustomID != "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "discord" {
					return nil, invalidForm("components: a link needs a URL and has no custom_id")
				}
				buttons = append(buttons, Button{Label: c.Label, URL: c.URL})
				continue
			case c.URL != "":
				return nil, invalidForm("components: only a link has a URL")
			case c.CustomID == "" || seen[c.CustomID]:
				return nil, invalidForm("components: custom_id is missing, or there twice")
			}
			seen[c.CustomID] = true
			if c.Type == 2 {
				buttons = append(buttons, Button{Label: c.Label, Data: c.CustomID})
			}
			for _, o := range c.Options {
				buttons = append(buttons, Button{Label: o.Label, Data: o.Value, Menu: c.CustomID})
			}
		}
	}
	return buttons, nil
}

// find returns a message of a channel; the caller holds mu.
func (f *channels) find(channel, id string) *Message {
	for _, m := range f.messages[channel] {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// remove deletes a message; the caller holds mu.
func (f *channels) remove(m *Message) {
	f.messages[m.Channel] = slices.DeleteFunc(f.messages[m.Channel], func(other *Message) bool { return other == m })
	f.emitOwn("MESSAGE_DELETE", m)
}

// change changes a message of the bot; the caller holds mu.
func (f *channels) change(m *Message, p *payload) (any, *refusal) {
	if problem := f.apply(m, p); problem != nil {
		return nil, problem
	}
	m.Edits++
	m.edited = time.Now().UTC().Format(time.RFC3339Nano)
	f.emitOwn("MESSAGE_UPDATE", m)
	return f.wire(m), nil
}

// wire is a message as Discord answers with it; the caller holds mu.
func (f *channels) wire(m *Message) map[string]any {
	out := map[string]any{
		"id": m.ID, "channel_id": m.Channel, "type": 0, "content": cmp.Or(m.raw, m.Text), "timestamp": cmp.Or(m.born, time.Now()).UTC().Format(time.RFC3339), "edited_timestamp": nil,
		"author": userOf(m.Author), "attachments": list(m.attachments), "embeds": []any{}, "mentions": []any{}, "mention_roles": []any{},
		"mention_everyone": false, "tts": false, "pinned": false, "flags": m.flags, "components": numbered(m.components),
	}
	if m.Used {
		out["type"] = 20
	}
	if m.webhook {
		out["webhook_id"], out["application_id"] = Application, Application
	}
	if m.edited != "" {
		out["edited_timestamp"] = m.edited
	}
	if m.nonce != "" {
		out["nonce"] = m.nonce
	}
	if m.ReplyTo != "" {
		out["message_reference"] = map[string]any{"type": 0, "channel_id": m.Channel, "message_id": m.ReplyTo}
	}
	return out
}

// numbered are components as Discord answers with them: each has a number.
func numbered(rows []any) []any {
	out, n := []any{}, 0
	for _, row := range rows {
		r, _ := row.(map[string]any)
		parts, _ := r["components"].([]any)
		var inside []any
		for _, part := range parts {
			p, _ := part.(map[string]any)
			n++
			c := map[string]any{"id": n}
			if p["type"] == float64(3) {
				c["min_values"], c["max_values"] = 1, 1
			}
			maps.Copy(c, p)
			inside = append(inside, c)
		}
		n++
		out = append(out, map[string]any{"type": 1, "id": n, "components": list(inside)})
	}
	return out
}

func list[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

func userOf(id string) map[string]any {
	name := "user" + id
	if id == BotUser {
		name = BotName
	}
	return map[string]any{
		"id": id, "username": name, "avatar": nil, "discriminator": "0", "public_flags": 0, "flags": 0, "global_name": nil,
		"primary_guild": nil, "bot": id == BotUser,
	}
}

// memberOf is a member of a server in an event.
func memberOf(roles []string) map[string]any {
	return map[string]any{"roles": list(roles), "joined_at": "2026-01-01T00:00:00Z", "deaf": false, "mute": false, "flags": 0}
}

// secret makes the token of an interaction in Discord's form.
func secret(id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte("interaction:" + id + ":" + strings.Repeat("x", 60)))
}
