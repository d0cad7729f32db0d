package fakebot

import (
	"fmt"
	"strings"
)

// IsPicture reports whether the bot has sent a picture.
func IsPicture(m Message) bool { return m.FromBot && m.Kind == "photo" }

// Answering fits what answers a message.
func Answering(message int, fits func(Message) bool) func(Message) bool {
	return func(m Message) bool { return m.ReplyTo == message && fits(m) }
}

// Saying fits messages that contain a text.
func Saying(text string) func(Message) bool {
	return func(m Message) bool { return strings.Contains(m.Text, text) }
}

// Filter returns the messages that fit.
func Filter(list []Message, fits func(Message) bool) (out []Message) {
	for _, m := range list {
		if fits(m) {
			out = append(out, m)
		}
	}
	return out
}

// Ends counts the ends of a request that its person sees: its pictures or apologies.
func Ends(list []Message, message int) int {
	pictures := len(Filter(list, Answering(message, IsPicture)))
	apologies := len(Filter(list, Answering(message, func(m Message) bool {
		return m.FromBot && (Saying("the connection dropped before")(m) || Saying("Sorry")(m) || Saying("couldn't make that")(m))
	})))
	if pictures > 0 && apologies > 0 {
		// The picture did arrive, and the bridge could not know.
		return pictures
	}
	return pictures + apologies
}

// Texts shows messages, one a line.
func Texts(list []Message) string {
	var b strings.Builder
	for _, m := range list {
		fmt.Fprintf(&b, "\n  %d bot=%v %s re %d: %q", m.ID, m.FromBot, m.Kind, m.ReplyTo, m.Text)
	}
	return b.String()
}
