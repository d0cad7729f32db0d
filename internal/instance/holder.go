package instance

import (
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
)

// Holder is a run that has an instance, or waits there for its turn. It is all that a link knows of
// runs.
type Holder interface {
	// Job is the job of the run.
	Job() job.Job
	// Tell passes on what happened to the link. It must not block.
	Tell(e Event)
	// Followed reports whether somebody still follows the run.
	Followed() bool
}

// EventKind says what happened to a link.
type EventKind int

const (
	// Heard: the instance sent a message.
	Heard EventKind = iota
	// Up: the instance's socket is open again after a gap.
	Up
	// Down: the socket is gone; the event's err says why.
	Down
	// Moved: the instance can now be reached at another address, over the event's link.
	Moved
	// Next: the run before this one is over on the instance, so this one is the next to begin.
	Next
	// Idle: the instance has reported that it has nothing to do.
	Idle
)

// Event is one thing that happened to a link.
type Event struct {
	Kind  EventKind
	Frame comfyui.Frame
	Err   error
	Link  *Link
}
