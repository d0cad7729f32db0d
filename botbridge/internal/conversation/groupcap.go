package conversation

import (
	"cmp"
	"context"
	"strconv"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// caps returns the daily limits that moderators can choose for a member, in the unit of the
// bot's own share: pictures, or seconds of GPU time.
func caps(metered bool) []int64 {
	if metered {
		return []int64{60, 300, 900, 3600}
	}
	return []int64{3, 10, 30, 100}
}

// The keys of the buttons for each unit, so that an old button has no effect after the unit
// was changed.
const (
	capPictures = "cap"
	capSeconds  = "secs"
)

// daily returns what a member may use in a day, 0 for the bot's own limit.
func (g GroupSettings) daily(metered bool) int64 {
	if metered {
		return g.GPUSeconds
	}
	return g.Pictures
}

// withCap returns a change of the limit; nil if no button offers it.
func withCap(key, value string) func(*GroupSettings) {
	n, err := strconv.ParseInt(value, 10, 64)
	if value == "-" {
		n, err = 0, nil
	}
	metered := key == capSeconds
	known := n == 0
	for _, offered := range caps(metered) {
		known = known || n == offered
	}
	if err != nil || !known {
		return nil
	}
	return func(g *GroupSettings) {
		if metered {
			g.GPUSeconds = n
		} else {
			g.Pictures = n
		}
	}
}

// countedIn returns the group whose count a member's usage goes into as well, "" if there
// are no moderators who could set a limit. Usage from before the group got a new id is
// included.
func countedIn(tn *turn) string {
	if _, ok := tn.p.(platform.Moderated); !ok || !tn.Chat.Group {
		return ""
	}
	return cmp.Or(tn.group.Counts, groupName(tn.Event))
}

// capText says how much of the group's limit the user has used, "" without a limit.
func (pr *progress) capText(ctx context.Context, tn *turn) (string, error) {
	most := tn.group.daily(pr.guard.Metered())
	group := countedIn(tn)
	if group == "" || most == 0 || pr.guard.Admin(tn.Event) {
		return "", nil
	}
	spent, err := pr.store.Usage.SpentIn(ctx, tn.who())
	if err != nil {
		return "", err
	}
	return "\n" + tn.say("group_share", locale.With{"spent": spent[group], "share": most}), nil
}
