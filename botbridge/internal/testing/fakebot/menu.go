package fakebot

import (
	"encoding/json"
	"strconv"
	"strings"
)

// menuOf is where a menu is shown: in a chat, 0 for all, to people of a language, "" for
// all others.
type menuOf struct {
	chat     int64
	language string
}

// menus are what the commands are called in each chat.
type menus struct {
	*chats
	shown map[menuOf][]string
}

// setMenu sets or removes a menu, and holds it against the documentation: a language of two
// letters, at most 100 commands, names of 1-32 and descriptions of 1-256 characters.
func (f *menus) setMenu(c *call) (any, *problem) {
	where, p := f.menuPlace(c)
	if p != nil {
		return nil, p
	}
	if c.method == "deleteMyCommands" {
		delete(f.shown, where)
		return true, nil
	}
	var list []struct{ Command, Description string }
	if err := json.Unmarshal([]byte(c.params["commands"]), &list); err != nil {
		return nil, refuse("can't parse commands JSON object")
	}
	if len(list) > 100 {
		return nil, refuse("BOT_COMMANDS_TOO_MUCH")
	}
	names := []string{}
	for _, command := range list {
		if command.Command == "" || len(command.Command) > 32 || strings.Trim(command.Command, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return nil, refuse("BOT_COMMAND_INVALID")
		}
		if n := len([]rune(command.Description)); n < 1 || n > 256 {
			return nil, refuse("BOT_COMMAND_DESCRIPTION_INVALID")
		}
		names = append(names, command.Command)
	}
	f.shown[where] = names
	f.changedNow()
	return true, nil
}

// menuPlace reads the scope and the language of a menu.
func (f *menus) menuPlace(c *call) (where menuOf, p *problem) {
	where.language = c.params["language_code"]
	if where.language != "" && (len(where.language) != 2 || strings.Trim(where.language, "abcdefghijklmnopqrstuvwxyz") != "") {
		return where, refuse("invalid language code specified")
	}
	var scope struct {
		Type   string          `json:"type"`
		ChatID json.RawMessage `json:"chat_id"` // a number, or a text that is one
	}
	if text := c.params["scope"]; text != "" && json.Unmarshal([]byte(text), &scope) != nil {
		return where, refuse("can't parse BotCommandScope")
	}
	switch scope.Type {
	case "", "default":
		return where, nil
	case "chat":
		id, err := strconv.ParseInt(strings.Trim(string(scope.ChatID), `"`), 10, 64)
		if err != nil || id == 0 {
			return where, refuse("chat not found")
		}
		where.chat = id
		return where, f.movedAway(id)
	}
	return where, refuse("unsupported type specified")
}

// Menu returns the names of the commands that the menu of a chat shows to somebody whose
// program speaks a language: that of the chat before the general one, and of each the one
// of the language first.
func (f *menus) Menu(chat int64, language string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, where := range []menuOf{{chat, language}, {chat, ""}, {0, language}} {
		if list, ok := f.shown[where]; ok {
			return list
		}
	}
	return f.shown[menuOf{}]
}
