package conversation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

const (
	statsDays = 30
	// statsCommands is how many commands are listed, the busiest first.
	statsCommands = 5
)

// stats answers /stats: the state of the bridge, and figures for the last 30 days.
func (op *operators) stats(ctx context.Context, tn *turn) error {
	days, err := op.store.Usage.Days(ctx, statsDays)
	if err != nil {
		return err
	}
	chats, err := op.store.Chats.All(ctx)
	if err != nil {
		return err
	}
	waiting, err := op.store.Inbox.Waiting(ctx)
	if err != nil {
		return err
	}
	lines := []string{tn.say("stats", locale.With{
		"active": op.runner.Active(), "chats": len(chats), "inbox": waiting, "outbox": op.outbox.Waiting(),
	})}
	lines = append(lines, counted(days[statsDays-1])...)
	month := state.Sum(days)
	if month.Requests() > 0 {
		lines = append(lines, op.monthly(tn, &month)...)
	}
	if f := op.runner.LastFault(); f != nil && !tn.Chat.Group {
		ago := request.Duration(op.texts, tn.language, time.Since(f.At))
		lines = append(lines, "", tn.say("stats_fault", locale.With{"time": ago, "command": f.Command, "said": f.Said}))
	}
	return tn.post(ctx, platform.Post{ReplyTo: tn.Message.ID, Private: true, Press: tn.Press, Text: strings.Join(lines, "\n")})
}

// counted returns a day's outcomes and payments, under the names that they are stored by.
func counted(day state.Day) (lines []string) {
	all := maps.Clone(day.Outcomes)
	for name, n := range map[string]int64{"stars_paid": day.Paid, "stars_refunded": day.Refunded} {
		if n > 0 {
			all[name] = n
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		lines = append(lines, fmt.Sprintf("%s: %d", name, all[name]))
	}
	return lines
}

// monthly returns the figures for several days.
func (op *operators) monthly(tn *turn, month *state.Day) []string {
	lines := []string{"", tn.say("stats_month", locale.With{
		"days": statsDays, "n": month.Requests(), "done": month.Outcomes[string(request.Done)], "users": month.Users,
	})}
	half, ok := month.Wait(0.5)
	if most, _ := month.Wait(0.95); ok {
		lines = append(lines, tn.say("stats_wait", locale.With{
			"half": request.Duration(op.texts, tn.language, half), "most": request.Duration(op.texts, tn.language, most),
		}))
	}
	busiest := slices.SortedFunc(maps.Keys(month.Commands), func(a, b string) int {
		if d := month.Commands[b] - month.Commands[a]; d != 0 {
			return int(max(-1, min(1, d)))
		}
		return strings.Compare(a, b)
	})
	var named []string
	for _, command := range busiest[:min(statsCommands, len(busiest))] {
		named = append(named, fmt.Sprintf("/%s %d", command, month.Commands[command]))
	}
	lines = append(lines, strings.Join(named, " · "))
	if month.Paid > 0 {
		lines = append(lines, tn.say("stats_stars", locale.With{"n": month.Paid, "back": month.Refunded}))
	}
	return lines
}
