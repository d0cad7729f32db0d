package run

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/stream"
)

// Notices tells clients of jobs that end without a run that they could see.
type Notices struct {
	queue   *queue.Queue
	streams *stream.Streams
}

// NewNotices returns notices to the clients of a queue's jobs.
func NewNotices(q *queue.Queue, streams *stream.Streams) *Notices {
	return &Notices{queue: q, streams: streams}
}

// Age returns how long ago a job was accepted.
func (n *Notices) Age(j job.Job) time.Duration {
	return time.Since(n.queue.Clock().When(j.CreatedAt))
}

// Announce gives a client the complete sequence of a job that ended without a run that it could
// see.
func (n *Notices) Announce(j job.Job, end ...stream.Message) {
	if j.Parent != "" {
		return
	}
	msgs := append([]stream.Message{stream.Text(comfyui.ExecutionStart(j.ID, time.Now()))}, end...)
	k := stream.KeyOf(j.Requester)
	n.streams.Posted(k, n.queue.Clock().When(j.CreatedAt))
	n.streams.Ended(k, stream.Attempt{Prompt: j.ID, Job: j.Key, Fence: j.Fence}, msgs...)
	n.streams.Statuses.Changed(j.Caller)
}

// Interrupted tells a client that its job was stopped before it ran.
func (n *Notices) Interrupted(j job.Job) {
	n.Announce(j, stream.Text(comfyui.ExecutionInterrupted(j.ID, "", "", nil, time.Now())))
}
