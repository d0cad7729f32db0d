package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/retry"
)

const (
	// clockPause is the time between two looks at Redis's clock.
	clockPause = time.Second
	// clockSteps is by how much the two clocks may part before that is noted.
	clockSteps = 100 * time.Millisecond
	// maxEras bounds how far back such steps are known.
	maxEras = 64
)

var clockScript = NewScript("clock", ReadOnly, "return {int(now()), int(now() - ahead)}")

// Clock relates Redis's time, which is in what scripts store, to the clock of this process.
// The two may differ, and Redis's may jump; between two looks at it time is measured here.
// Without a look they are taken to be the same.
type Clock struct {
	db   *DB
	base time.Time // when this process began to measure

	mu   sync.Mutex
	eras []era
	skew time.Duration
}

// era is a time in which both clocks went at the same pace.
type era struct {
	from time.Time     // by Redis's time; the first one has no beginning
	at   time.Duration // the same, after base
	zero time.Time     // Redis's time at base
}

func newClock(db *DB) *Clock { return &Clock{db: db, base: time.Now()} }

// Clock is Redis's time as this process knows it.
func (db *DB) Clock() *Clock { return db.clock }

// Now returns Redis's time as scripts have it: it is not set back when Redis's clock is.
func (db *DB) Now(ctx context.Context) (time.Time, error) { return db.clock.look(ctx) }

// Follow keeps looking at Redis's clock until ctx ends.
func (c *Clock) Follow(ctx context.Context) {
	for ctx.Err() == nil {
		_, _ = c.look(ctx) // until Redis is back, time is measured here
		retry.Sleep(ctx, clockPause)
	}
}

func (c *Clock) look(ctx context.Context) (time.Time, error) {
	asked := time.Now()
	reply, err := c.db.Run(ctx, clockScript)
	if err != nil {
		return time.Time{}, err
	}
	var ms [2]int64
	for n := range ms {
		if ms[n], err = strconv.ParseInt(reply[n], 10, 64); err != nil {
			return time.Time{}, fmt.Errorf("redis: %w", err)
		}
	}
	now := time.UnixMilli(ms[0])
	c.note(asked, time.Since(asked), now, time.UnixMilli(ms[1]))
	return now, nil
}

// note takes in what Redis's time and its clock were within a trip.
func (c *Clock) note(asked time.Time, trip time.Duration, now, shown time.Time) {
	half := trip / 2
	at := asked.Add(half).Sub(c.base)
	next := era{at: at, zero: now.Add(-at)}
	c.mu.Lock()
	defer c.mu.Unlock()
	skew := shown.Sub(asked.Add(half))
	c.skew = skew - min(max(skew, -half), half)
	if len(c.eras) > 0 {
		last := c.eras[len(c.eras)-1]
		if next.zero.Sub(last.zero).Abs() <= half+clockSteps {
			return
		}
		// It has parted since the last look. What lies beyond the old time is of the new one.
		if next.from = last.zero.Add(at); next.from.After(now) {
			next.from = now
		}
	}
	c.eras = append(c.eras[max(0, len(c.eras)-maxEras+1):], next)
}

// Now returns Redis's time, without asking it.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.eras) == 0 {
		return time.Now()
	}
	return c.eras[len(c.eras)-1].zero.Add(time.Since(c.base))
}

// When returns when it was so many milliseconds by Redis's time, which have passed, by the
// clock of this process: what happened before Redis's clock jumped is not older for that.
func (c *Clock) When(ms int64) time.Time {
	t, now := time.UnixMilli(ms), time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, e := range slices.Backward(c.eras) {
		if n == 0 || !t.Before(e.from) {
			t = c.base.Add(t.Sub(e.zero))
			break
		}
	}
	if t.After(now) {
		return now
	}
	return t
}

// Ago returns the time by Redis's clock up to which whatever it stored is at least so old, by
// that clock, by what this process has measured, and by its own clock: what is deleted for its
// age must not go because one of them was set forward.
func (c *Clock) Ago(age time.Duration) time.Time {
	at, t := time.Since(c.base)-age, time.Now().Add(-age)
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, e := range slices.Backward(c.eras) {
		if n > 0 && at < e.at {
			continue // the clock was set after that
		}
		if there := e.zero.Add(at); there.Before(t) {
			return there
		}
		break
	}
	return t
}

// Skew is how far Redis's clock is ahead of this machine's, at least: what the request took
// is left out. It is negative if that is behind.
func (c *Clock) Skew() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skew
}
