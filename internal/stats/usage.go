package stats

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// BillLua is a library for scripts: bill(tenant, kind, amount) adds to what a tenant has used
// today, amount being a whole number. The kinds are those of [Day].
//
//go:embed scripts/bill.lua
var BillLua string

//go:embed scripts/usage.lua
var usageLua string

var readUsage = redis.NewScript("usage/read", redis.ReadOnly, usageLua)

const (
	// UsageDays is how many days are kept.
	UsageDays = 400
	// MaxDays bounds one reading, and maxRows its answer.
	MaxDays = 366
	maxRows = 100_000
)

// Errors of [Usage.Read].
var (
	// ErrDays means that the days are no range, or too many.
	ErrDays = errors.New("usage: the first day is after the last, or they are more than a year apart")
	// ErrMuch means that so many tenants on so many days do not fit into an answer.
	ErrMuch = errors.New("usage: too much for one answer: ask for fewer days")
)

// Day is what a tenant has used on a day.
type Day struct {
	// Date is the day by UTC.
	Date time.Time
	// Tenant is empty for those that are too many to be told apart.
	Tenant string
	// Done, Failed and Cancelled are jobs that have ended on that day.
	Done, Failed, Cancelled int64
	// Time is how long its runs have occupied instances. A run counts for the day on which
	// it ends, and not at all if it was lost.
	Time time.Duration
	// Bytes are those of files that its jobs have made.
	Bytes int64
	// Cost is what its runs at serverless endpoints have cost, in the operator's money.
	Cost float64
}

// counts are the kinds that scripts count, and where they go.
func (d *Day) count(kind string, n int64) {
	switch kind {
	case "done":
		d.Done += n
	case "failed":
		d.Failed += n
	case "cancelled":
		d.Cancelled += n
	case "ms":
		d.Time += time.Duration(n) * time.Millisecond
	case "bytes":
		d.Bytes += n
	case "micros":
		d.Cost += float64(n) / 1e6
	}
}

// kinds are all of them.
var kinds = [...]string{"done", "failed", "cancelled", "ms", "bytes", "micros"}

// Usage is what tenants have used, by day, so that an operator can bill them. The scripts of other
// packages count it in the same step in which it happens: nothing is lost or counted twice when a
// hub is killed.
type Usage struct{ db *redis.DB }

// NewUsage returns the usage of a Redis.
func NewUsage(db *redis.DB) *Usage { return &Usage{db: db} }

// dayOf is the number of a day.
func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// Read returns what was used from one day to another, both included, by day and tenant.
// With a tenant, its own only. The error is [ErrDays], [ErrMuch], or one of Redis.
func (u *Usage) Read(ctx context.Context, from, to time.Time, tenant *string) ([]Day, error) {
	first, last := dayOf(from), dayOf(to)
	if first > last || last-first >= MaxDays || first < 0 {
		return nil, ErrDays
	}
	var all []Day
	for day := first; day <= last; day++ {
		rows, err := u.day(ctx, day, tenant)
		if err != nil {
			return nil, err
		}
		if all = append(all, rows...); len(all) > maxRows {
			return nil, ErrMuch
		}
	}
	return all, nil
}

// day reads one day, sorted by tenant.
func (u *Usage) day(ctx context.Context, day int64, tenant *string) ([]Day, error) {
	args := []any{day, "0", ""}
	if tenant != nil {
		args = []any{day, "1", *tenant}
		for _, kind := range kinds {
			args = append(args, kind)
		}
	}
	reply, err := u.db.Run(ctx, readUsage, args...)
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	rows := map[string]*Day{}
	for pair := range slices.Chunk(reply, 2) {
		kind, of, found := strings.Cut(pair[0], ":")
		if !found || len(pair) < 2 {
			return nil, errors.New("usage: a count without a tenant")
		}
		n, err := strconv.ParseInt(pair[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("usage: %w", err)
		}
		if rows[of] == nil {
			rows[of] = &Day{Date: time.Unix(day*24*60*60, 0).UTC(), Tenant: of}
		}
		rows[of].count(kind, n)
	}
	list := make([]Day, 0, len(rows))
	for _, row := range rows {
		list = append(list, *row)
	}
	slices.SortFunc(list, func(a, b Day) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return list, nil
}
