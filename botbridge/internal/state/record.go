package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// Verdict says whether a request was accepted.
type Verdict string

const (
	// Taken: the request is stored.
	Taken Verdict = "ok"
	// Exists: it was stored before; the message arrived a second time.
	Exists Verdict = "exists"
	// OverQuota: the user has used up the day's share.
	OverQuota Verdict = "quota"
	// OverCap: the user has used up what a group allows in a day.
	OverCap Verdict = "cap"
	// Busy: the user has too many unfinished requests.
	Busy Verdict = "busy"
)

// Ask is what Create checks together with storing, so that two simultaneous
// messages cannot both pass.
type Ask struct {
	// Who is the user, with the platform.
	Who string
	// Metered means that the request is charged at its end: it is accepted while any of the
	// share is left.
	Metered bool
	// Price is what the request costs of the daily share, Quota the share; 0 means no
	// limit.
	Price, Quota int64
	// Waiting bounds the user's unfinished requests; 0 means no limit.
	Waiting int
	// Instead is the request that this one replaces, "" for none: it does not count as
	// waiting, nor its price, Back, as spent.
	Instead string
	Back    int64
	// Group is the group whose count the price goes into as well, "" for none. Cap is how
	// much of it a user may spend there in a day, 0 for no limit, and BackThere what the
	// replaced request counts there.
	Group          string
	Cap, BackThere int64
}

// Create stores a new request.
func (s *Requests) Create(ctx context.Context, id string, record any, a Ask) (Verdict, error) {
	doc, err := json.Marshal(record)
	if err != nil {
		return "", err
	}
	reply, err := s.run(ctx, createScript, s.term.load(), id, doc, a.Who, day(time.Now()), a.Price, a.Quota, a.Waiting, flag(a.Metered),
		a.Instead, a.Back, a.Group, a.Cap, a.BackThere)
	if err != nil {
		return "", err
	}
	return Verdict(reply[0]), nil
}

// Load reads a request and its version.
func (s *Requests) Load(ctx context.Context, id string, record any) (version int64, err error) {
	values, err := s.db.Client().HMGet(ctx, s.db.Key("request", id), "v", "doc").Result()
	if err != nil {
		return 0, err
	}
	v, _ := values[0].(string)
	doc, _ := values[1].(string)
	if v == "" {
		return 0, ErrNotFound
	}
	return number(v), json.Unmarshal([]byte(doc), record)
}

// Save replaces a request that has the given version, and returns the new version. It may
// be repeated after Redis was unavailable: if the change was saved already, that is not a
// conflict.
func (s *Requests) Save(ctx context.Context, id string, version int64, record any) (int64, error) {
	doc, err := json.Marshal(record)
	if err != nil {
		return version, err
	}
	reply, err := s.run(ctx, saveScript, s.term.load(), id, version, doc)
	if err != nil {
		return version, err
	}
	return number(reply[1]), nil
}

// End is what Finish settles.
type End struct {
	Who string
	// Refund and Price change what the user has spent that day.
	Refund, Price int64
	// Group is the group whose count it goes into as well, as in Ask.
	Group string
	// Asked is when the request was made; it counts for that day's share.
	Asked time.Time
	// Command and Took, in milliseconds, are added to the mean, unless Took is 0.
	Command string
	Took    int64
	// Outcome is counted for the operator, and if it is Done, so is the time since Asked.
	Outcome string
	Done    bool
}

// Finish saves an active request for the last time: from now on it expires. Like Save, it
// may be repeated after Redis was unavailable.
func (s *Requests) Finish(ctx context.Context, id string, version int64, record any, e End) (int64, error) {
	doc, err := json.Marshal(record)
	if err != nil {
		return version, err
	}
	step := ""
	if e.Done {
		step = strconv.Itoa(waitStep(time.Since(e.Asked)))
	}
	reply, err := s.run(ctx, finishScript, s.term.load(), id, version, doc, s.o.Keep.Milliseconds(),
		e.Who, day(e.Asked), e.Price-e.Refund, e.Command, e.Took, e.Outcome, step, passer(e.Who, day(e.Asked)), e.Group)
	if err != nil {
		return version, err
	}
	return number(reply[1]), nil
}

// Active returns the ids of all unfinished requests, the oldest first.
func (s *Requests) Active(ctx context.Context) ([]string, error) {
	return s.db.Client().ZRange(ctx, s.db.Key("active"), 0, -1).Result()
}

// ActiveOf returns those of one user, the oldest first.
func (s *Requests) ActiveOf(ctx context.Context, who string) ([]string, error) {
	return s.db.Client().ZRange(ctx, s.db.Key("live", who), 0, -1).Result()
}

// Spent returns how much of the day's share a user has used.
func (s *Usage) Spent(ctx context.Context, who string) (int64, error) {
	n, err := s.db.Client().Get(ctx, s.db.Key("spent", day(time.Now()), who)).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return n, err
}

// SpentIn returns how much of it that was today, by group.
func (s *Usage) SpentIn(ctx context.Context, who string) (map[string]int64, error) {
	all, err := s.db.Client().HGetAll(ctx, s.db.Key("spent_in", day(time.Now()), who)).Result()
	if err != nil {
		return nil, fmt.Errorf("reading what was spent in groups: %w", err)
	}
	spent := map[string]int64{}
	for group, n := range all {
		spent[group] = number(n)
	}
	return spent, nil
}

// Mean returns how long the last runs of a command took, false if there were none.
func (s *Usage) Mean(ctx context.Context, command string) (time.Duration, bool) {
	list, err := s.db.Client().LRange(ctx, s.db.Key("took", command), 0, -1).Result()
	if err != nil || len(list) == 0 {
		return 0, false
	}
	var sum int64
	for _, text := range list {
		sum += number(text)
	}
	return time.Duration(sum/int64(len(list))) * time.Millisecond, true
}

// day names a day; shares are per day of UTC.
func day(t time.Time) string { return strconv.FormatInt(t.Unix()/86400, 10) }

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}
