package fakebot

import (
	"maps"
	"net/http"
)

// supergroupsBelow is what the ids of supergroups are below.
const supergroupsBelow = -1_000_000_000_000

// Migrate turns a group into a supergroup, whose id it returns. The old group refuses every
// call from now on, and says where it is, as ResponseParameters have it; messages keep their
// ids only there. If told, both chats get the service message about it, as Message has it.
func (f *chats) Migrate(group int64, told bool) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	to := supergroupsBelow + group
	f.moved[group] = to
	if told {
		f.serve(group, map[string]any{"migrate_to_chat_id": to})
		f.serve(to, map[string]any{"migrate_from_chat_id": group})
	}
	return to
}

// serve sends a service message: one without a text, by who has done it. The caller holds mu.
func (f *chats) serve(chat int64, fields map[string]any) {
	m := f.newMessage(chat)
	m.Kind = "service"
	body := f.json(m)
	delete(body, "caption")
	body["from"] = (&Person{ID: 1}).json()
	maps.Copy(body, fields)
	f.push("message", body)
}

// movedAway refuses a call to a group that has become a supergroup.
func (f *chats) movedAway(chat int64) *problem {
	to, moved := f.moved[chat]
	if !moved {
		return nil
	}
	return &problem{status: http.StatusBadRequest, text: "Bad Request: group chat was upgraded to a supergroup chat", movedTo: to}
}
