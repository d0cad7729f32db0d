package conversation

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// named returns the user that an operator names: an id of this platform, or a full
// name such as telegram:12345.
func named(tn *turn, text string) (string, bool) {
	if text == "" {
		return "", false
	}
	if strings.Contains(text, ":") {
		return text, true
	}
	return request.Who(tn.Platform, text), true
}

// ban bans a user: /ban ID [DAYS].
func (t *Talk) ban(ctx context.Context, tn *turn) error {
	fields := strings.Fields(tn.rest)
	var d time.Duration
	if len(fields) > 1 {
		days, err := strconv.Atoi(fields[1])
		if err != nil || days < 1 || days > 10_000 {
			return t.reply(ctx, tn, t.say(tn, "usage_ban", nil))
		}
		d = time.Duration(days) * 24 * time.Hour
	}
	if len(fields) == 0 {
		return t.reply(ctx, tn, t.say(tn, "usage_ban", nil))
	}
	who, _ := named(tn, fields[0])
	if err := t.o.Guard.Ban(ctx, who, tn.who(), d); err != nil {
		return err
	}
	return t.reply(ctx, tn, t.say(tn, "banned", locale.With{"who": who}))
}

// unban lifts a user's ban: /unban ID.
func (t *Talk) unban(ctx context.Context, tn *turn) error {
	who, ok := named(tn, tn.rest)
	if !ok {
		return t.reply(ctx, tn, t.say(tn, "usage_ban", nil))
	}
	if err := t.o.Guard.Unban(ctx, who); err != nil {
		return err
	}
	return t.reply(ctx, tn, t.say(tn, "unbanned", locale.With{"who": who}))
}

// quota sets a user's own share: /quota ID N, or - for the usual one.
func (t *Talk) quota(ctx context.Context, tn *turn) error {
	fields := strings.Fields(tn.rest)
	if len(fields) != 2 {
		return t.reply(ctx, tn, t.say(tn, "usage_quota", nil))
	}
	share := int64(-1)
	if fields[1] != "-" {
		var err error
		if share, err = strconv.ParseInt(fields[1], 10, 64); err != nil || share < 1 {
			return t.reply(ctx, tn, t.say(tn, "usage_quota", nil))
		}
	}
	who, _ := named(tn, fields[0])
	if err := t.o.Guard.SetShare(ctx, who, share); err != nil {
		return err
	}
	return t.reply(ctx, tn, t.say(tn, "quota_set", locale.With{"who": who, "share": fields[1]}))
}

// Care is how soon an event is looked at.
type Care string

// The cares. Somebody waits for the answer to a button while its platform shows that
// it was pressed.
const (
	Button  Care = "button"
	Private Care = "private"
	Group   Care = "group"
)

// Lane names the events that are handled one after the other: those of a chat, but
// the buttons that one user presses there do not wait for messages.
func Lane(e platform.Event) string {
	if e.Payment != nil {
		// A payment waits for nothing else, and what is asked before it can never be so much
		// that there is no place for it.
		return strings.Join([]string{e.Platform, string(Button), string(e.Kind), e.User.ID}, "|")
	}
	if e.Kind == platform.Pressed {
		return strings.Join([]string{e.Platform, string(Button), e.Chat.ID, e.User.ID}, "|")
	}
	if e.Kind == platform.Moved {
		// Before all that is said in the new chat.
		return ChatKey(e.Platform, platform.Chat{ID: e.To, Group: true})
	}
	return ChatKey(e.Platform, e.Chat)
}

// CareOf returns the care for the events of a lane.
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
