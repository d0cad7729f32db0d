package job

import "fmt"

// State is where a job stands in its life.
type State string

// The states. The first three are live: the job is in /queue. The last three
// are ends: nothing leaves them.
const (
	Queued    State = "queued"
	Leased    State = "leased"
	Running   State = "running"
	Done      State = "done"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Ended reports whether the state is an end.
func (s State) Ended() bool { return s == Done || s == Failed || s == Cancelled }

// Live reports whether a job in this state is in the queue or on an instance.
func (s State) Live() bool { return s == Queued || s == Leased || s == Running }

// Event is what can happen to a job.
type Event string

// The events. Each is one script in package queue.
const (
	// Claim gives a waiting job to an instance.
	Claim Event = "claim"
	// Start says that the instance began to execute.
	Start Event = "start"
	// Complete ends a run well.
	Complete Event = "complete"
	// Fail ends a job for good: the graph's own error, or no attempts left.
	Fail Event = "fail"
	// Requeue puts a lost run back at its old place.
	Requeue Event = "requeue"
	// Cancel ends a job at the client's wish.
	Cancel Event = "cancel"
)

// transitions is the whole life of a job; what is not here cannot happen. The
// scripts of package queue enforce it.
var transitions = map[State]map[Event]State{
	Queued: {Claim: Leased, Fail: Failed, Cancel: Cancelled},
	Leased: {Start: Running, Complete: Done, Fail: Failed, Requeue: Queued, Cancel: Cancelled},
	// An instance may report the start twice: after a lost socket the hub
	// learns of it again.
	Running: {Start: Running, Complete: Done, Fail: Failed, Requeue: Queued, Cancel: Cancelled},
}

// TransitionError says that an event cannot happen in a state.
type TransitionError struct {
	State State
	Event Event
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("job: no %s from %s", e.Event, e.State)
}

// Next is the state after an event, or a *TransitionError. It is the oracle of the
// tests of package queue, which hold the scripts against it; no other code calls
// it, because only a script can look at a state and change it in one step.
func Next(s State, e Event) (State, error) {
	if next, ok := transitions[s][e]; ok {
		return next, nil
	}
	return s, &TransitionError{State: s, Event: e}
}
