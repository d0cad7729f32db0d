package queue

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Kind says what an Event tells.
type Kind string

// The kinds of events.
const (
	// Resync: events may have been missed; look at everything. It comes
	// first, and after each reconnection.
	Resync Kind = "resync"
	// Queued: a job waits, new or again.
	Queued Kind = "queued"
	// Asked: a job waits that its client does not know to be accepted.
	Asked Kind = "asked"
	// Refused: the instance has refused a job at the door, see [Queue.Admit].
	Refused Kind = "refused"
	// Claimed: a job was given to an instance.
	Claimed Kind = "claimed"
	// Started: an instance began to execute.
	Started Kind = "started"
	// CancelAsk: the holder should end a run.
	CancelAsk Kind = "cancel"
	// Withdrawn: as CancelAsk, and no one is to hear of the run any more.
	Withdrawn Kind = "withdrawn"
	// Freed: an instance has no run any more.
	Freed Kind = "freed"
	// Ended: a job has ended, or was cancelled while it waited.
	Ended Kind = "ended"
)

// Event is a hint that something happened. It may be late, lost or doubled.
type Event struct {
	Kind Kind
	// Key to Client are the job's; all empty in a Resync.
	Key    string
	ID     string
	Tenant string
	Caller string
	Client string
	// Instance and Hub are those of its last run, empty before the first.
	Instance string
	Hub      string
	// State is the job's state after what happened.
	State job.State
}

// eventFields is how many strings make an event; see tell() in lib.lua. More
// are a newer hub's and are skipped.
const eventFields = 9

func readEvent(payload string) (Event, bool) {
	parts, ok := redis.Unpack(payload)
	if !ok || len(parts) < eventFields {
		return Event{}, false
	}
	return Event{
		Kind: Kind(parts[0]), Key: parts[1], ID: parts[2], Tenant: parts[3], Caller: parts[4], Client: parts[5],
		Instance: parts[6], Hub: parts[7], State: job.State(parts[8]),
	}, true
}

// Subscribe gives the events of all hubs, this one's too, until the context
// ends; then the channel is closed. A slow reader misses some and gets a
// Resync for them.
func (q *Queue) Subscribe(ctx context.Context) <-chan Event {
	out := make(chan Event)
	go func() {
		defer close(out)
		for notice := range q.db.Subscribe(ctx, q.keys.events()) {
			event, ok := readEvent(notice.Payload)
			if notice.Resync {
				event, ok = Event{Kind: Resync}, true
			}
			if !ok {
				continue
			}
			select {
			case out <- event:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
