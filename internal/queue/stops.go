package queue

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// maxStops bounds what can be stopped at the same time.
const maxStops = 10_000

// Stop names what gets no more runs until it is let go: everything, a tenant, or an instance. Runs
// that have begun go on.
type Stop string

// StopAll stops everything.
const StopAll Stop = "all"

const tenantStop, instanceStop = "tenant:", "instance:"

// StopTenant returns the Stop of a tenant.
func StopTenant(name string) Stop { return Stop(tenantStop + name) }

// StopInstance returns the Stop of an instance.
func StopInstance(name string) Stop { return Stop(instanceStop + name) }

// Tenant returns the tenant that the Stop names, if it names one.
func (s Stop) Tenant() (name string, ok bool) { return strings.CutPrefix(string(s), tenantStop) }

// Instance returns the instance that the Stop names, if it names one.
func (s Stop) Instance() (name string, ok bool) { return strings.CutPrefix(string(s), instanceStop) }

// SetStop stops something at all hubs for the operator, or lets it go on, whoever has stopped it. It
// reports whether that has changed anything. The error is ErrFull if 10,000 things are stopped.
func (q *Pauses) SetStop(ctx context.Context, s Stop, stop bool) (changed bool, err error) {
	return q.setStop(ctx, s, stop, true, 0)
}

// Scale is SetStop for the scaler: it changes nothing that the operator has stopped.
func (q *Pauses) Scale(ctx context.Context, s Stop, stop bool) error {
	_, err := q.setStop(ctx, s, stop, false, 0)
	return err
}

// Drain stops an instance at all hubs. Whatever is still running there after the deadline, which is
// at least a millisecond from now, is to be taken back, see Deadlines; zero means never. It
// replaces an earlier deadline. The error is as for SetStop.
func (q *Pauses) Drain(ctx context.Context, instance string, deadline time.Duration) error {
	_, err := q.setStop(ctx, StopInstance(instance), true, true, deadline)
	return err
}

// Deadline is when whatever is still running on a drained instance is to be taken back.
type Deadline struct {
	// At is in milliseconds since the Unix epoch by Redis's clock. Left is the time until then by
	// the same clock; negative if that has passed.
	At   int64
	Left time.Duration
}

// Deadlines returns the deadlines of all drained instances that have one.
func (q *Pauses) Deadlines(ctx context.Context) (map[Stop]Deadline, error) {
	_, fields, err := q.run(ctx, deadlinesScript)
	if err != nil {
		return nil, err
	}
	all := make(map[Stop]Deadline, len(fields)/3)
	for n := 0; n+2 < len(fields); n += 3 {
		p := parser{r: record{"at": fields[n+1], "left": fields[n+2]}}
		all[Stop(fields[n])] = Deadline{At: p.int("at"), Left: time.Duration(p.int("left")) * time.Millisecond}
		if p.err != nil {
			return nil, p.err
		}
	}
	return all, nil
}

func (q *Pauses) setStop(ctx context.Context, s Stop, stop, byHand bool, deadline time.Duration) (changed bool, err error) {
	after := int64(0)
	if deadline > 0 {
		after = milliseconds(deadline)
	}
	code, fields, err := q.run(ctx, stopScript, string(s), digit(stop), maxStops, after, digit(byHand))
	if err != nil {
		return false, err
	}
	if err := refusal(code); err != nil {
		return false, err
	}
	return fields[0] == "1", nil
}

func digit(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}

// Stops returns everything that is stopped.
func (q *Pauses) Stops(ctx context.Context) (map[Stop]bool, error) {
	members, err := q.db.Client().SMembers(ctx, q.db.Key("q", "stops")).Result()
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	stops := make(map[Stop]bool, len(members))
	for _, m := range members {
		stops[Stop(m)] = true
	}
	return stops, nil
}
