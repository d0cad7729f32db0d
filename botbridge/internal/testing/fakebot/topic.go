package fakebot

import (
	"encoding/json"
	"strings"
)

// trim removes what Telegram removes around a text.
func trim(text string) string { return strings.TrimSpace(text) }

// replyOf returns the message that a call replies to. One that is gone is refused, unless the
// bot says that it does not matter.
func replyOf(f *chats, c *call, chat int64) (int, *problem) {
	var reply struct {
		MessageID int  `json:"message_id"`
		Anyway    bool `json:"allow_sending_without_reply"`
	}
	_ = json.Unmarshal([]byte(c.params["reply_parameters"]), &reply)
	if m := f.find(chat, reply.MessageID); reply.MessageID == 0 || m != nil && !m.Deleted {
		return reply.MessageID, nil
	}
	if !reply.Anyway {
		return 0, refuse("message to be replied not found")
	}
	return 0, nil
}

// topic is a thread of a group.
type topic struct {
	chat int64
	id   int
}

// SetTopic opens or closes a topic of a group. Whoever writes in one opens it, too.
func (f *chats) SetTopic(chat int64, id int, open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.topics[topic{chat, id}] = open
}

// noTopic refuses a call to a topic that is closed, or that there is not.
func noTopic(f *chats, c *call, chat int64) *problem {
	id := c.int("message_thread_id")
	switch open, known := f.topics[topic{chat, id}]; {
	case id == 0 || open:
		return nil
	case known:
		return refuse("TOPIC_CLOSED")
	}
	return refuse("message thread not found")
}
