package fakediscord

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Person is somebody in a channel.
type Person struct {
	f                          *Fake
	ID, Channel, Guild, Locale string
	Roles                      []string
}

// Person returns somebody in a channel of a server; guild is "" for a private chat.
func (f *Fake) Person(id, channel, guild, locale string) *Person {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guilds[channel] = guild
	return &Person{f: f, ID: id, Channel: channel, Guild: guild, Locale: locale}
}

// Option is an argument of a command. A []byte is a picture.
type Option struct {
	Name  string
	Value any
}

// Use uses a slash command and returns the interaction's id.
func (p *Person) Use(command string, options ...Option) string {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	var filled []any
	attachments := map[string]any{}
	for _, o := range options {
		kind, value := 3, o.Value
		switch v := o.Value.(type) {
		case int:
			kind = 4
		case bool:
			kind = 5
		case float64:
			kind = 10
		case []byte:
			kind = 11
			a := f.store(p.Channel, "picture.png", "image/png", v)
			value = a["id"]
			attachments[a["id"].(string)] = a
		}
		filled = append(filled, map[string]any{"name": o.Name, "type": kind, "value": value})
	}
	data := map[string]any{"id": "500000000000000001", "type": 1, "name": command, "options": list(filled)}
	if len(attachments) > 0 {
		data["resolved"] = map[string]any{"attachments": attachments}
	}
	in := p.interaction(2)
	f.emit("INTERACTION_CREATE", p.wire(in, data, nil))
	return in.id
}

// UseOn uses a command on a message and returns the interaction's id.
func (p *Person) UseOn(message, command string) (string, error) {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.find(p.Channel, message)
	known := slices.ContainsFunc(f.commands, func(c map[string]any) bool { return c["type"] == float64(3) && c["name"] == command })
	if m == nil || !known || m.Only != "" && m.Only != p.ID {
		return "", fmt.Errorf("there is no %q for the message %s", command, message)
	}
	in := p.interaction(2)
	f.emit("INTERACTION_CREATE", p.wire(in, map[string]any{
		"id": "500000000000000002", "type": 3, "name": command, "target_id": m.ID,
		"resolved": map[string]any{"messages": map[string]any{m.ID: f.wire(m)}},
	}, nil))
	return in.id, nil
}

// Type fills in an argument of a command up to what is typed, and returns the values
// that the bot suggests.
func (p *Person) Type(ctx context.Context, command, argument, typed string) ([]string, error) {
	f := p.f
	f.mu.Lock()
	if !f.suggests(command, argument) {
		f.mu.Unlock()
		return nil, fmt.Errorf("%s of /%s is not registered with suggestions", argument, command)
	}
	in := p.interaction(4)
	f.emit("INTERACTION_CREATE", p.wire(in, map[string]any{
		"id": "500000000000000001", "type": 1, "name": command,
		"options": []any{map[string]any{"name": argument, "type": 3, "value": typed, "focused": true}},
	}, nil))
	f.mu.Unlock()
	err := f.await(ctx, func() bool { return in.suggested != nil })
	return in.suggested, err
}

// suggests reports whether an argument is registered with suggestions; the caller holds mu.
func (f *Fake) suggests(command, argument string) bool {
	for _, c := range f.commands {
		options, _ := c["options"].([]any)
		for _, o := range options {
			option, _ := o.(map[string]any)
			if c["name"] == command && option["name"] == argument {
				return option["autocomplete"] == true && option["choices"] == nil
			}
		}
	}
	return false
}

// Press presses a button of a message, by its label, and returns the interaction's id.
func (p *Person) Press(message, label string) (string, error) {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.find(p.Channel, message)
	if m == nil || m.Only != "" && m.Only != p.ID {
		return "", fmt.Errorf("there is no message %s", message)
	}
	at := slices.IndexFunc(m.Buttons, func(b Button) bool { return strings.Contains(b.Label, label) })
	if at < 0 {
		return "", fmt.Errorf("there is no button %q under %+v", label, m)
	}
	b := m.Buttons[at]
	if b.URL != "" {
		return "", fmt.Errorf("%q is a link, of which nobody is told", label)
	}
	if b.Menu != "" {
		return p.press(m, map[string]any{"component_type": 3, "custom_id": b.Menu, "values": []string{b.Data}}), nil
	}
	return p.press(m, map[string]any{"component_type": 2, "custom_id": b.Data}), nil
}

// Forge presses a button that no message has.
func (p *Person) Forge(message, data string) string {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	m := p.f.find(p.Channel, message)
	if m == nil {
		m = &Message{ID: message, Channel: p.Channel, FromBot: true, Author: BotUser}
	}
	return p.press(m, map[string]any{"component_type": 2, "custom_id": data})
}

func (p *Person) press(m *Message, data map[string]any) string {
	in := p.interaction(3)
	in.answer = m
	p.f.emit("INTERACTION_CREATE", p.wire(in, data, m))
	return in.id
}

// interaction makes an interaction; the caller holds mu.
func (p *Person) interaction(kind int) *interaction {
	id := p.f.id()
	in := &interaction{id: id, token: secret(id), channel: p.Channel, guild: p.Guild, user: p.ID, kind: kind, born: time.Now()}
	p.f.waiting[in.token] = in
	return in
}

func (p *Person) wire(in *interaction, data map[string]any, m *Message) map[string]any {
	out := map[string]any{
		"id": in.id, "application_id": Application, "type": in.kind, "token": in.token, "version": 1, "channel_id": in.channel, "data": data,
		"locale": p.Locale, "entitlements": []any{}, "authorizing_integration_owners": map[string]any{"0": "0"}, "app_permissions": "0",
		"attachment_size_limit": p.f.o.Upload, "channel": map[string]any{"id": in.channel, "type": 0}, "context": 0,
	}
	if p.Guild == "" {
		out["user"], out["context"], out["channel"] = userOf(p.ID), 1, map[string]any{"id": in.channel, "type": 1}
	} else {
		out["authorizing_integration_owners"] = map[string]any{"0": p.Guild}
		out["guild_id"] = p.Guild
		out["guild_locale"] = "en-US"
		member := memberOf(p.Roles)
		member["user"], member["permissions"] = userOf(p.ID), "0"
		out["member"] = member
	}
	if m != nil {
		out["message"] = p.f.wire(m)
	}
	return out
}

// Say writes a message, as a reply if replyTo is not "", and returns its id. A mention
// of the bot is written as <@BotUser>.
func (p *Person) Say(text, replyTo string, pictures ...[]byte) string {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	m := &Message{ID: f.id(), Channel: p.Channel, Author: p.ID, Text: text, ReplyTo: replyTo, born: time.Now()}
	for _, data := range pictures {
		m.attachments = append(m.attachments, f.store(p.Channel, "picture.png", "image/png", data))
	}
	f.messages[p.Channel] = append(f.messages[p.Channel], m)
	f.emitMessage("MESSAGE_CREATE", p.Guild, p.spoken(m))
	f.touch()
	return m.ID
}

// Change changes a message.
func (p *Person) Change(message, text string) {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.find(p.Channel, message); m != nil {
		m.Text, m.edited = text, time.Now().UTC().Format(time.RFC3339Nano)
		f.emitMessage("MESSAGE_UPDATE", p.Guild, p.spoken(m))
	}
}

// spoken is a message as the gateway tells it; the caller holds mu.
func (p *Person) spoken(m *Message) map[string]any {
	out := p.f.wire(m)
	var mentions []any
	mentioned := strings.Contains(m.Text, "<@"+BotUser+">")
	if replied := p.f.find(p.Channel, m.ReplyTo); replied != nil {
		reference := map[string]any{"type": 0, "message_id": replied.ID, "channel_id": replied.Channel}
		if p.Guild != "" {
			reference["guild_id"] = p.Guild
		}
		answered := p.f.wire(replied)
		if p.Guild != "" && !replied.FromBot && !strings.Contains(replied.Text, "<@"+BotUser+">") {
			hide(answered)
		}
		out["type"], out["message_reference"], out["referenced_message"] = 19, reference, answered
		mentioned = mentioned || replied.FromBot
	}
	if mentioned {
		mentions = append(mentions, userOf(BotUser))
	}
	out["mentions"] = list(mentions)
	if p.Guild != "" {
		out["guild_id"], out["member"] = p.Guild, memberOf(p.Roles)
		if !mentioned {
			hide(out)
		}
	}
	return out
}

// hide takes away what is not for the bot: without the intent for it, Discord shows what
// people write only in private chats and where they mention the bot.
func hide(message map[string]any) {
	message["content"], message["attachments"], message["embeds"], message["components"] = "", []any{}, []any{}, []any{}
}

// Sees returns the messages that the person sees.
func (p *Person) Sees() []Message {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	return p.sees()
}

func (p *Person) sees() (list []Message) {
	for _, m := range p.f.messages[p.Channel] {
		if m.Only == "" || m.Only == p.ID {
			list = append(list, *m)
		}
	}
	return list
}

// Wait waits until one message of the bot fits, and returns it with all that are seen.
func (p *Person) Wait(ctx context.Context, fits func(Message) bool) (found Message, all []Message, err error) {
	err = p.f.await(ctx, func() bool {
		all = p.sees()
		at := slices.IndexFunc(all, func(m Message) bool { return m.FromBot && fits(m) })
		if at >= 0 {
			found = all[at]
		}
		return at >= 0
	})
	return found, all, err
}
