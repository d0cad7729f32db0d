package conversation

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// named returns the user that an operator means: an id on this platform, or a full name
// such as telegram:12345.
func named(tn *turn, text string) (string, bool) {
	if text == "" {
		return "", false
	}
	if strings.Contains(text, ":") {
		return text, true
	}
	return request.Who(tn.Platform, text), true
}

// operators answers the commands of the operators.
type operators struct {
	store  *state.Store
	outbox *outbox.Outbox
	runner *request.Runner
	guard  *limits.Guard
	texts  *locale.Bundle
}

// ban bans a user: /ban ID [DAYS].
func (op *operators) ban(ctx context.Context, tn *turn) error {
	fields := strings.Fields(tn.rest)
	var d time.Duration
	if len(fields) > 1 {
		days, err := strconv.Atoi(fields[1])
		if err != nil || days < 1 || days > 10_000 {
			return tn.reply(ctx, tn.say("usage_ban", nil))
		}
		d = time.Duration(days) * 24 * time.Hour
	}
	if len(fields) == 0 {
		return tn.reply(ctx, tn.say("usage_ban", nil))
	}
	who, _ := named(tn, fields[0])
	if err := op.guard.Ban(ctx, who, tn.who(), d); err != nil {
		return err
	}
	return tn.reply(ctx, tn.say("banned", locale.With{"who": who}))
}

// unban lifts a user's ban: /unban ID.
func (op *operators) unban(ctx context.Context, tn *turn) error {
	who, ok := named(tn, tn.rest)
	if !ok {
		return tn.reply(ctx, tn.say("usage_ban", nil))
	}
	if err := op.guard.Unban(ctx, who); err != nil {
		return err
	}
	return tn.reply(ctx, tn.say("unbanned", locale.With{"who": who}))
}

// quota sets a user's own daily share: /quota ID N, or - to go back to the default.
func (op *operators) quota(ctx context.Context, tn *turn) error {
	fields := strings.Fields(tn.rest)
	if len(fields) != 2 {
		return tn.reply(ctx, tn.say("usage_quota", nil))
	}
	share := int64(-1)
	if fields[1] != "-" {
		var err error
		if share, err = strconv.ParseInt(fields[1], 10, 64); err != nil || share < 1 {
			return tn.reply(ctx, tn.say("usage_quota", nil))
		}
	}
	who, _ := named(tn, fields[0])
	if err := op.guard.SetShare(ctx, who, share); err != nil {
		return err
	}
	return tn.reply(ctx, tn.say("quota_set", locale.With{"who": who, "share": fields[1]}))
}

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
