package queue

import (
	"context"
	"strconv"
)

const (
	// maxDurations bounds the pairs of a structure and a GPU type whose runs are kept, each of which has a
	// name for how long they ran, one for what they needed, and one for where their time went; those that
	// have not run for longest go first.
	maxDurations = 3000
	// runsKept is how many of the last runs are kept per pair.
	runsKept = 12
)

// Measured is a run that was measured. Package schedule words both texts; the hubs share them, and
// a hub skips what it cannot read.
type Measured struct {
	// Pair is a structure on a GPU type.
	Pair string
	// Run must not contain a space.
	Run string
}

// KeepMeasured stores measured runs for all hubs.
func (q *Lessons) KeepMeasured(ctx context.Context, runs []Measured) error {
	if len(runs) == 0 {
		return nil
	}
	args := []any{maxDurations, runsKept}
	for _, r := range runs {
		args = append(args, r.Pair, r.Run)
	}
	_, _, err := q.run(ctx, measuredScript, args...)
	return err
}

// Durations returns the last runs of each pair that had one since the given time, the oldest first
// and separated by spaces, and the time for the next call. Both times are in milliseconds by
// Redis's clock; 0 returns all.
func (q *Lessons) Durations(ctx context.Context, since int64) (runs map[string]string, now int64, err error) {
	_, fields, err := q.run(ctx, durationsScript, since)
	if err != nil {
		return nil, since, err
	}
	now, err = strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return nil, since, err
	}
	return replied(fields[1:]), now, nil
}
