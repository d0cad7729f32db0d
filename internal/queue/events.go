package queue

import (
	"context"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Kind is the kind of an Event.
type Kind string

// The kinds of events.
const (
	// Resync: events may have been missed, so look at everything. It is the first
	// event, and follows each reconnection.
	Resync Kind = "resync"
	// Queued: a job is waiting, new or again.
	Queued Kind = "queued"
	// Asked: a job is waiting, and its client does not know yet that it has been accepted.
	Asked Kind = "asked"
	// Refused: the instance refused a job before its client was answered, see [Queue.Admit].
	Refused Kind = "refused"
	// Claimed: a job was assigned to an instance.
	Claimed Kind = "claimed"
	// Started: an instance has started to execute.
	Started Kind = "started"
	// CancelAsk: the holder should end a run.
	CancelAsk Kind = "cancel"
	// Withdrawn: like CancelAsk, and the run must no longer be shown to anybody.
	Withdrawn Kind = "withdrawn"
	// Freed: an instance no longer has a run.
	Freed Kind = "freed"
	// Ended: a job has ended, or was cancelled while it waited.
	Ended Kind = "ended"
	// Splitting: the job may be made in parts from now on. It is told to find out who listens.
	Splitting Kind = "splitting"
	// PartEnded: a part of the job has ended.
	PartEnded Kind = "part"
)

// Event is a hint that something happened. It may be delayed, lost or duplicated.
type Event struct {
	Kind Kind
	// Key, ID and Requester are the job's; all are empty in a Resync.
	Key string
	ID  string
	job.Requester
	// Instance and Hub are those of its last run, empty before the first.
	Instance string
	Hub      string
	// State is the job's state after the event.
	State job.State
	// Class and Shape are the job's; empty in an event from a hub of an older version.
	Class, Shape string
}

// eventFields is the number of strings in every hub's events; see tell() in lib.lua. Newer hubs
// append the class and the shape, and there may be more, which are skipped.
const eventFields = 9

func readEvent(payload string) (Event, bool) {
	parts, ok := redis.Unpack(payload)
	if !ok || len(parts) < eventFields {
		return Event{}, false
	}
	e := Event{
		Kind: Kind(parts[0]), Key: parts[1], ID: parts[2],
		Requester: job.Requester{Tenant: parts[3], Caller: parts[4], Client: parts[5]},
		Instance:  parts[6], Hub: parts[7], State: job.State(parts[8]),
	}
	if len(parts) > eventFields {
		e.Class = parts[eventFields]
	}
	if len(parts) > eventFields+1 {
		e.Shape = parts[eventFields+1]
	}
	return e, true
}

// Subscribe returns the events of all hubs, including this one, until the context ends; then it
// closes the channel. A slow reader misses some and gets a Resync instead.
func (q *Lessons) Subscribe(ctx context.Context) <-chan Event {
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
			q.copies.overheard(event)
			select {
			case out <- event:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
