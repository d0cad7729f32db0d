package conversation

import (
	"strings"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// Care is how urgent an event is.
type Care string

// The degrees of urgency. Whoever has pressed a button watches it spin until the bridge
// responds.
const (
	Button  Care = "button"
	Private Care = "private"
	Group   Care = "group"
)

// Lane names the queue of an event; the events of a lane are handled one at a time. A chat
// has one, and each user's button presses there have their own, so that they do not wait
// behind messages.
func Lane(e platform.Event) string {
	if e.Payment != nil {
		// Payments wait for nothing else. Checkouts have a lane of their own, so that a
		// flood of them cannot fill that of the payments.
		return strings.Join([]string{e.Platform, string(Button), string(e.Kind), e.User.ID}, "|")
	}
	if e.Kind == platform.Queried {
		return strings.Join([]string{e.Platform, string(Button), string(e.Kind), e.User.ID}, "|")
	}
	if e.Kind == platform.Pressed {
		return strings.Join([]string{e.Platform, string(Button), e.Chat.ID, e.User.ID}, "|")
	}
	if e.Kind == platform.Moved {
		// Ahead of everything that is said in the new chat.
		return ChatKey(e.Platform, platform.Chat{ID: e.To, Group: true})
	}
	return ChatKey(e.Platform, e.Chat)
}

// CareOf returns how urgent the events of a lane are.
func CareOf(lane string) Care {
	parts := strings.SplitN(lane, "|", 3)
	if len(parts) == 3 && (parts[1] == string(Button) || parts[1] == string(Group)) {
		return Care(parts[1])
	}
	return Private
}

// ChatKey names a chat across all platforms.
func ChatKey(platformName string, c platform.Chat) string {
	kind := "private"
	if c.Group {
		kind = "group"
	}
	return platformName + "|" + kind + "|" + c.ID
}

// ParseChatKey parses what ChatKey returned.
func ParseChatKey(key string) (platformName string, c platform.Chat, ok bool) {
	parts := strings.SplitN(key, "|", 3)
	if len(parts) != 3 {
		return "", c, false
	}
	return parts[0], platform.Chat{ID: parts[2], Group: parts[1] == "group"}, true
}
