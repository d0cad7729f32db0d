package state

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// waitSteps is the number of buckets for waiting times; each is wider than the one
	// before by the square root of two. The first goes up to a second, the last from nine
	// hours.
	waitSteps = 32
	// Beginnings of the fields of a day.
	commandField, waitField = "command:", "wait:"
)

// Day counts the requests of a day (UTC). Days are kept for 35 days.
type Day struct {
	// Begin is the beginning of the day.
	Begin time.Time
	// Outcomes and Commands count the requests that ended, by outcome and command.
	Outcomes, Commands map[string]int64
	// Users is how many people made them; 100,000 at most.
	Users int64
	// Paid and Refunded are what people paid and got back.
	Paid, Refunded int64

	waits [waitSteps]int64
}

// Requests is how many requests ended.
func (d *Day) Requests() (n int64) {
	for _, count := range d.Outcomes {
		n += count
	}
	return n
}

// Sum adds up days as one that begins with the first. Its Users are those of the busiest
// day, as they may be the same people each day.
func Sum(days []Day) Day {
	sum := Day{Outcomes: map[string]int64{}, Commands: map[string]int64{}}
	for i, d := range days {
		if i == 0 {
			sum.Begin = d.Begin
		}
		for outcome, n := range d.Outcomes {
			sum.Outcomes[outcome] += n
		}
		for command, n := range d.Commands {
			sum.Commands[command] += n
		}
		for step, n := range d.waits {
			sum.waits[step] += n
		}
		sum.Paid, sum.Refunded, sum.Users = sum.Paid+d.Paid, sum.Refunded+d.Refunded, max(sum.Users, d.Users)
	}
	return sum
}

// Wait returns how long that share of the finished requests took at most, from the message
// to the result, to within a fifth; false if there were none.
func (d *Day) Wait(share float64) (time.Duration, bool) {
	var all, seen int64
	for _, n := range d.waits {
		all += n
	}
	for step, n := range d.waits {
		if seen += n; n > 0 && float64(seen) >= share*float64(all) {
			return time.Duration(math.Pow(2, float64(step)/2-0.25) * float64(time.Second)), true
		}
	}
	return 0, false
}

// waitStep is the step of a wait.
func waitStep(d time.Duration) int {
	return int(min(waitSteps-1, max(0, math.Ceil(2*math.Log2(d.Seconds())))))
}

// passer returns a user's name for counting a day's people. It differs each day, so that
// nobody can tell who came back.
func passer(who, day string) string {
	sum := sha256.Sum256([]byte(day + "/" + who))
	return hex.EncodeToString(sum[:8])
}

// Days returns the last n days, at most 35, the oldest first and today last. Days without
// requests are there, too.
func (s *Usage) Days(ctx context.Context, n int) ([]Day, error) {
	now := time.Now()
	days := make([]Day, n)
	counts, users := make([]*redis.MapCmd, n), make([]*redis.IntCmd, n)
	_, err := s.db.Client().Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range days {
			days[i].Begin = now.UTC().Truncate(24*time.Hour).AddDate(0, 0, i-n+1)
			counts[i] = p.HGetAll(ctx, s.db.Key("counts", day(days[i].Begin)))
			users[i] = p.SCard(ctx, s.db.Key("passers", day(days[i].Begin)))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the counts of days: %w", err)
	}
	for i := range days {
		days[i].read(counts[i].Val())
		days[i].Users = users[i].Val()
	}
	return days, nil
}

// read reads the fields of a day.
func (d *Day) read(fields map[string]string) {
	d.Outcomes, d.Commands = map[string]int64{}, map[string]int64{}
	for field, text := range fields {
		n := number(text)
		if command, ok := strings.CutPrefix(field, commandField); ok {
			d.Commands[command] = n
			continue
		}
		if step, ok := strings.CutPrefix(field, waitField); ok {
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < waitSteps {
				d.waits[i] = n
			}
			continue
		}
		switch field {
		case "stars_paid":
			d.Paid = n
		case "stars_refunded":
			d.Refunded = n
		default:
			d.Outcomes[field] = n
		}
	}
}
