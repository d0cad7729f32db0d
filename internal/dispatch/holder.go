package dispatch

import (
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
)

// holder is a run that has an instance, or waits there for its turn. It is all that a link knows of
// runs.
type holder interface {
	// job is the job of the run.
	job() job.Job
	// tell passes on what happened to the link. It must not block.
	tell(e linkEvent)
	// followed reports whether somebody still follows the run.
	followed() bool
}

// linkEventKind says what happened to a link.
type linkEventKind int

const (
	// linkHeard: the instance sent a message.
	linkHeard linkEventKind = iota
	// linkUp: the instance's socket is open again after a gap.
	linkUp
	// linkDown: the socket is gone; the event's err says why.
	linkDown
	// linkMoved: the instance can now be reached at another address, over the event's link.
	linkMoved
	// linkNext: the run before this one is over on the instance, so this one is the next to begin.
	linkNext
)

// linkEvent is one thing that happened to a link.
type linkEvent struct {
	kind  linkEventKind
	frame comfyui.Frame
	err   error
	link  *connection
}
