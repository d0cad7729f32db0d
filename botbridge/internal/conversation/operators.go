package conversation

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// named returns the user that an operator means: an id on this platform, or a full name
// such as telegram:12345; false if nobody can be called so, as with @alice.
func named(tn *turn, text string) (string, bool) {
	if !strings.Contains(text, ":") {
		text = request.Who(tn.Platform, text)
	}
	return text, limits.Named(text)
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
	who, ok := named(tn, fields[0])
	if !ok {
		return tn.reply(ctx, tn.say("usage_ban", nil))
	}
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
	who, ok := named(tn, fields[0])
	if !ok {
		return tn.reply(ctx, tn.say("usage_quota", nil))
	}
	if err := op.guard.SetShare(ctx, who, share); err != nil {
		return err
	}
	return tn.reply(ctx, tn.say("quota_set", locale.With{"who": who, "share": fields[1]}))
}
