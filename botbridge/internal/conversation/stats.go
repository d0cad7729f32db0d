package conversation

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/chart"
	"github.com/comfyhub/comfyhub/botbridge/internal/locale"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

const (
	statsDays = 30
	// statsCommands is how many commands are named, the busiest first.
	statsCommands = 5
)

// stats shows an operator the state of the bridge, and a picture of the last 30 days. Its
// figures are in the text, too.
func (t *Talk) stats(ctx context.Context, tn *turn) error {
	days, err := t.o.Store.Days(ctx, statsDays)
	if err != nil {
		return err
	}
	chats, err := t.o.Store.Chats(ctx)
	if err != nil {
		return err
	}
	waiting, err := t.o.Store.Waiting(ctx)
	if err != nil {
		return err
	}
	lines := []string{t.say(tn, "stats", locale.With{
		"active": t.o.Runner.Active(), "chats": len(chats), "inbox": waiting, "outbox": t.o.Outbox.Waiting(),
	})}
	lines = append(lines, counted(days[statsDays-1])...)
	month := state.Sum(days)
	post := platform.Post{ReplyTo: tn.Message.ID, Private: true, Press: tn.Press}
	if month.Requests() > 0 {
		lines = append(lines, t.monthly(tn, &month)...)
		if limits := tn.p.Limits(); !limits.Linked { // else what exists only here cannot be shown
			picture, err := chart.Draw(days, t.chartWords(tn))
			if err != nil {
				return err
			}
			post.Files = []platform.Attachment{{
				Name: "stats.png", Media: platform.Photo, Size: int64(len(picture)),
				Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(picture)), nil },
			}}
		}
	}
	post.Text = strings.Join(lines, "\n")
	if len(post.Files) > 0 {
		post.Text = clipRunes(post.Text, tn.p.Limits().Caption/2) // a character may count twice
	}
	return t.post(ctx, tn, post)
}

// counted are the outcomes and payments of a day, in the operator's terms.
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

// monthly says what the picture shows.
func (t *Talk) monthly(tn *turn, month *state.Day) []string {
	lines := []string{"", t.say(tn, "stats_month", locale.With{
		"days": statsDays, "n": month.Requests(), "done": month.Outcomes[string(request.Done)], "users": month.Users,
	})}
	half, ok := month.Wait(0.5)
	if most, _ := month.Wait(0.95); ok {
		lines = append(lines, t.say(tn, "stats_wait", locale.With{
			"half": request.Duration(t.o.Texts, tn.language, half), "most": request.Duration(t.o.Texts, tn.language, most),
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
		lines = append(lines, t.say(tn, "stats_stars", locale.With{"n": month.Paid, "back": month.Refunded}))
	}
	return lines
}

func (t *Talk) chartWords(tn *turn) chart.Words {
	say := func(key string) string { return t.say(tn, key, nil) }
	return chart.Words{
		Requests: say("chart_requests"), Done: say("chart_done"), Failed: say("chart_failed"), Other: say("chart_other"), Users: say("chart_users"),
		Wait: say("chart_wait"), Half: say("chart_half"), Most: say("chart_most"), Day: say("my_day"),
		Duration: func(d time.Duration) string { return request.Duration(t.o.Texts, tn.language, d) },
	}
}
