package overflow

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/stats"
)

//go:embed scripts/move.lua
var moveLua string

// Durable: after a crash nobody may forget what was asked of an endpoint.
var moveScript = redis.NewScript("overflow/move", redis.Durable, stats.BillLua, moveLua)

var (
	// errChanged means that somebody else has changed a record meanwhile.
	errChanged = errors.New("overflow: somebody else has this run")
	// errBudget means that the day has no money left.
	errBudget = errors.New("overflow: the budget of the day is spent")
)

// phase is how far the run of a job is, as far as is known.
type phase string

// The phases. From settled on the money is counted.
const (
	// asked: the endpoint is being asked, and may have begun.
	asked phase = "asked"
	// begun: the run has an id.
	begun phase = "begun"
	// settled: it has ended well, and its files can be had for a while.
	settled phase = "settled"
	// over: the job goes to no endpoint any more.
	over phase = "over"
)

// record is what is stored about the run of a job.
type record struct {
	Endpoint string `json:"endpoint"`
	// Run names the run, and Remote is its id at the endpoint.
	Run    string `json:"run"`
	Remote string `json:"remote,omitempty"`
	Phase  phase  `json:"phase"`
	// Fence is that of the job's attempt that looks after it.
	Fence  int64  `json:"fence"`
	Tenant string `json:"tenant"`
	// Ending says that it is being ended: no other attempt may look after it.
	Ending bool `json:"ending,omitempty"`
	// Aside is the money that is set aside, in millionths.
	Aside int64 `json:"aside,omitempty"`
	// At is when it was asked for, in milliseconds by Redis's clock.
	At int64 `json:"at"`

	// text is the record as it is stored.
	text string
}

func decode(text string) (record, bool) {
	if text == "" {
		return record{}, false
	}
	r := record{text: text}
	if json.Unmarshal([]byte(text), &r) != nil {
		r.Phase = over // of another version: nobody pays for it again
	}
	return r, true
}

// store is what Redis has of this package.
type store struct{ db *redis.DB }

// find returns what is known about the run of a job; false for nothing.
func (s store) find(ctx context.Context, job string) (record, bool, error) {
	text, err := s.db.Client().HGet(ctx, s.db.Key("overflow", "runs"), job).Result()
	if errors.Is(err, redis.Nil) {
		return record{}, false, nil
	}
	r, ok := decode(text)
	return r, ok, err
}

// all returns what is known about all runs, by job.
func (s store) all(ctx context.Context) (map[string]record, error) {
	texts, err := s.db.Client().HGetAll(ctx, s.db.Key("overflow", "runs")).Result()
	if err != nil {
		return nil, err
	}
	records := make(map[string]record, len(texts))
	for job, text := range texts {
		if r, ok := decode(text); ok {
			records[job] = r
		}
	}
	return records, nil
}

// change is what happens to a record.
type change struct {
	job string
	// from is the record as it was read; the zero value for none. to is what it becomes, nil for
	// nothing.
	from record
	to   *record
	// cost is what is paid now, and budget what a day may cost if permission is asked for; both in
	// millionths.
	cost   int64
	budget string
}

// move makes a change, and returns the record as it is stored then. The error is errChanged,
// errBudget, or one of Redis.
func (s store) move(ctx context.Context, c change) (record, error) {
	var next record
	if c.to != nil {
		next = *c.to
		text, err := json.Marshal(next)
		if err != nil {
			return record{}, err
		}
		next.text = string(text)
	}
	of := next
	if c.to == nil {
		of = c.from
	}
	reply, err := s.db.Run(ctx, moveScript, c.job, c.from.text, next.text, of.Endpoint, next.Aside-c.from.Aside, c.cost, of.Tenant, c.budget)
	switch {
	case err != nil:
		return c.from, err
	case reply[0] == "budget":
		return c.from, errBudget
	case reply[0] != "ok":
		return c.from, errChanged
	}
	return next, nil
}

// money is what an endpoint has cost today, and what is set aside for its runs.
type money struct{ spent, aside float64 }

// purse returns that of an endpoint.
func (s store) purse(ctx context.Context, endpoint string) (money, error) {
	all, err := s.db.Client().HMGet(ctx, s.db.Key("overflow", "money"), "day:"+endpoint, "spent:"+endpoint, "aside:"+endpoint).Result()
	if err != nil {
		return money{}, err
	}
	var n [3]int64
	for i, v := range all {
		text, ok := v.(string)
		if !ok {
			continue
		}
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return money{}, fmt.Errorf("overflow: %w", err)
		}
	}
	if n[0] != s.now()/(24*time.Hour).Milliseconds() {
		n[1] = 0
	}
	return money{float64(n[1]) / micros, float64(n[2]) / micros}, nil
}

// now is Redis's time in milliseconds.
func (s store) now() int64 { return s.db.Clock().Now().UnixMilli() }

// micros are the millionths in which money is counted.
const micros = 1e6
