package stats

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/comfyhub/comfyhub/internal/redis"
)

const (
	// Width is the time of one bucket.
	Width = 5 * time.Minute
	// buckets is how many of them are kept.
	buckets = 288
	// maxNames bounds the counts of a bucket.
	maxNames = 100
)

// The counts of a bucket. Those of waits follow waitPrefix.
const (
	busyTime, upTime        = "busy", "up"
	switches, savedSwitches = "switched", "saved"
	waitPrefix              = "w"
)

// Outcomes are the ends of runs that are counted.
func Outcomes() []string { return []string{"done", "failed", "cancelled", "lost"} }

// Steps are the upper bounds of the waits that are told apart, in seconds.
func Steps() []float64 {
	return []float64{.1, .25, .5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600, 7200}
}

//go:embed scripts/trends.lua
var trendsLua string

var addTrends = redis.NewScript("trends/add", redis.Write, trendsLua)

// Trends are how the fleet has done within the last day: how many jobs ended and how, how long they
// waited, and how much of their time the instances worked. It counts per five minutes; hubs add what
// they have counted every few seconds, so that no job costs a round trip. They are safe for concurrent use.
type Trends struct {
	db *redis.DB

	mu    sync.Mutex
	added map[string]int64 // since the last Flush

	// turn belongs to whoever reads, or looks at what was read last.
	turn *semaphore.Weighted
	read time.Time
	last []Bucket
}

// NewTrends returns the trends in a Redis.
func NewTrends(db *redis.DB) *Trends {
	return &Trends{db: db, added: map[string]int64{}, turn: semaphore.NewWeighted(1)}
}

// Waited counts a job that was given to an instance after a wait.
func (t *Trends) Waited(wait time.Duration) {
	step, _ := slices.BinarySearch(Steps(), wait.Seconds())
	t.add(waitPrefix+strconv.Itoa(step), 1)
}

// Ended counts a run that ended; outcomes that are none of Outcomes are not counted.
func (t *Trends) Ended(outcome string) {
	if slices.Contains(Outcomes(), outcome) {
		t.add(outcome, 1)
	}
}

// Switched counts a run that loads models; or, if that was saved, one that would have had to if nobody
// had looked for an instance that has them.
func (t *Trends) Switched(saved bool) {
	if saved {
		t.add(savedSwitches, 1)
	} else {
		t.add(switches, 1)
	}
}

// Used counts time of instances: how much of it they worked, and how much they could have.
func (t *Trends) Used(busy, up time.Duration) {
	t.add(busyTime, busy.Milliseconds())
	t.add(upTime, up.Milliseconds())
}

func (t *Trends) add(name string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.added[name] += n
}

// Flush adds what was counted to what all hubs have counted. What cannot be added now is
// kept for the next time.
func (t *Trends) Flush(ctx context.Context) error {
	t.mu.Lock()
	added := t.added
	t.added = map[string]int64{}
	t.mu.Unlock()
	args := []any{Width.Milliseconds(), buckets}
	for _, name := range slices.Sorted(maps.Keys(added)) {
		if added[name] != 0 {
			args = append(args, name, added[name])
		}
	}
	if len(args) == 2 {
		return nil
	}
	if _, err := t.db.Run(ctx, addTrends, args...); err != nil {
		for name, n := range added {
			t.add(name, n)
		}
		return fmt.Errorf("trends: %w", err)
	}
	return nil
}

// Bucket is what happened within Width.
type Bucket struct {
	// At is when it began, in milliseconds since the Unix epoch by Redis's clock.
	At int64
	// Ended counts runs by outcome.
	Ended map[string]int64
	// P50 and P95 are the waits, in seconds, that one half of the jobs and all but a
	// twentieth did not exceed; -1 if none was given out.
	P50, P95 float64
	// Busy and Up are time of instances, in milliseconds: in which they worked, and in
	// which they were there.
	Busy, Up int64
	// Switched and Saved count runs, see [Trends.Switched].
	Switched, Saved int64
}

// readEvery is how old an answer of Day may be.
const readEvery = 5 * time.Second

// Day returns the buckets of the last day that have something in them, the oldest first.
func (t *Trends) Day(ctx context.Context) ([]Bucket, error) {
	if err := t.turn.Acquire(ctx, 1); err != nil { // those who ask at the same time share one reading
		return nil, fmt.Errorf("trends: %w", err)
	}
	defer t.turn.Release(1)
	if time.Since(t.read) < readEvery {
		return t.last, nil
	}
	stored, err := t.db.Client().HGetAll(ctx, t.db.Key("h", "trends")).Result()
	if err != nil {
		return nil, fmt.Errorf("trends: %w", err)
	}
	var day []Bucket
	for field, text := range stored {
		if n, err := strconv.ParseInt(field, 10, 64); err == nil {
			day = append(day, decodeBucket(n*Width.Milliseconds(), text))
		}
	}
	slices.SortFunc(day, func(a, b Bucket) int { return cmp.Compare(a.At, b.At) })
	t.last, t.read = day[max(0, len(day)-buckets):], time.Now()
	return t.last, nil
}

// decodeBucket reads a stored bucket; what it does not know it skips.
func decodeBucket(at int64, text string) Bucket {
	counts := map[string]int64{}
	for pair := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(pair, "=")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 && len(counts) < maxNames {
			counts[name] = n
		}
	}
	b := Bucket{At: at, Ended: map[string]int64{}, Busy: counts[busyTime], Up: counts[upTime], Switched: counts[switches], Saved: counts[savedSwitches]}
	for _, outcome := range Outcomes() {
		b.Ended[outcome] = counts[outcome]
	}
	waits := make([]int64, len(Steps())+1)
	for n := range waits {
		waits[n] = counts[waitPrefix+strconv.Itoa(n)]
	}
	b.P50, b.P95 = quantile(waits, .5), quantile(waits, .95)
	return b
}

// quantile returns a quantile of waits in seconds, between the bounds of its step; -1 if
// there are none.
func quantile(waits []int64, q float64) float64 {
	var all float64
	for _, n := range waits {
		all += float64(n)
	}
	if all == 0 {
		return -1
	}
	steps, rank, below := Steps(), q*all, 0.0
	for n, jobs := range waits {
		if below+float64(jobs) < rank || jobs == 0 {
			below += float64(jobs)
			continue
		}
		if n == len(steps) {
			return steps[n-1]
		}
		from := 0.0
		if n > 0 {
			from = steps[n-1]
		}
		return from + (steps[n]-from)*(rank-below)/float64(jobs)
	}
	return steps[len(steps)-1]
}
