package queue

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// dropAge is how long ago a job must have ended before its history entry may go because Redis
	// is full: its client must have had time to read it.
	dropAge = 15 * time.Second
	// droppedAtOnce is how many entries go at a time.
	droppedAtOnce = 64
	// roomTries is how often room is made for one change.
	roomTries = 8
	// toldEvery is how often the log says that entries were dropped.
	toldEvery = time.Minute
)

// room is made in a full Redis by dropping history, the oldest first: a prompt that is running or
// waiting matters more than one that ended long ago.
type room struct {
	turn *semaphore.Weighted // taken while room is being made

	mu      sync.Mutex
	dropped int // entries that the log has not mentioned yet
	told    time.Time
}

// isFull reports whether Redis refused a change because it has no memory left.
func isFull(err error) bool { return err != nil && strings.Contains(err.Error(), "OOM ") }

// withRoom makes a change that Redis refused because it was full, as soon as there is room. It
// returns refused if nothing may be dropped.
func (q *store) withRoom(ctx context.Context, refused error, change func() ([]string, error)) ([]string, error) {
	if q.db.Embedded() {
		return nil, refused
	}
	if err := q.room.turn.Acquire(ctx, 1); err != nil {
		return nil, refused
	}
	defer q.room.turn.Release(1)
	for range roomTries {
		// Another caller may have made room meanwhile.
		reply, err := change()
		if !isFull(err) {
			return reply, err
		}
		refused = err
		if !q.makeRoom(ctx) {
			break
		}
	}
	return nil, refused
}

// makeRoom drops some of the oldest entries. It reports whether there may be room now: some
// have gone, or Redis, whose use goes up and down by what its connections hold, is not full.
func (q *store) makeRoom(ctx context.Context) bool {
	now, err := q.db.Now(ctx)
	if err != nil {
		return false
	}
	reply, err := q.db.Run(ctx, makeRoomScript, now.Add(-dropAge).UnixMilli(), droppedAtOnce)
	if len(reply) == 1 && reply[0] == "room" {
		return true
	}
	if isFull(err) || len(reply) < 2 { // nothing was deleted, so even the reply could not be noted
		return false
	}
	n, err := strconv.Atoi(reply[1])
	if err != nil || n == 0 {
		return false
	}
	q.room.mu.Lock()
	defer q.room.mu.Unlock()
	q.room.dropped += n
	if time.Since(q.room.told) > toldEvery {
		q.log.Warn("the memory of Redis is full: the oldest history entries were dropped to make room; raise maxmemory or bound the history",
			"entries", q.room.dropped)
		q.room.dropped, q.room.told = 0, time.Now()
	}
	return true
}

// Writable makes sure that Redis would take a job now: that it answers, runs scripts, and stores
// what they write as durably as accepted jobs. Errors: ErrUnavailable.
func (q *store) Writable(ctx context.Context) error {
	_, _, err := q.run(ctx, writableScript)
	return err
}
