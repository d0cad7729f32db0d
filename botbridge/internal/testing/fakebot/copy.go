package fakebot

import "cmp"

// copyMessage makes a message with what another one shows.
func (f *chats) copyMessage(c *call, chat int64) (any, *problem) {
	from := f.find(c.int64("from_chat_id"), c.int("message_id"))
	if from == nil || from.Deleted {
		return nil, refuse("message to copy not found")
	}
	buttons, problem := buttonsOf(c)
	if problem != nil {
		return nil, problem
	}
	reply, problem := replyOf(f, c, chat)
	if problem := cmp.Or(problem, f.restricted(chat, from.Kind), noTopic(f, c, chat)); problem != nil {
		return nil, problem
	}
	m := f.newMessage(chat)
	id := m.ID
	*m = *from
	m.ID, m.Chat, m.FromBot, m.Album, m.ReplyTo, m.Topic, m.Buttons, m.Edits = id, chat, true, "", reply, c.int("message_thread_id"), buttons, 0
	if caption := trim(c.params["caption"]); caption != "" {
		m.Text = caption
	}
	if data, ok := f.files[photoID(from)]; ok {
		f.files[photoID(m)] = data
	}
	return map[string]any{"message_id": m.ID}, nil
}
