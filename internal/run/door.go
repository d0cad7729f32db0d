package run

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// Door is where the client of a job waits for the answer to its POST. Messages of the run are held
// back until the client has it, and if the hub is in doubt, an idle instance is asked meanwhile
// whether it takes the job. Only the hub that has the client has the door; the run may be another
// hub's.
type Door struct {
	doors *Doors
	key   string
	// known is closed when an instance has taken the job, or the last one has refused it.
	known chan struct{}
	// next is sent to when an instance has refused the job and another one is asked.
	next chan struct{}
	// answered is closed a moment after the client has its answer.
	answered chan struct{}
	closed   atomic.Bool

	mu         sync.Mutex
	nodeErrors []byte
	heard      bool
	// waited says that somebody is waiting: the job is queued.
	waited bool
	// fence is the job's fence when it was last seen in the queue.
	fence int64
}

// Doors are the open doors by job key.
type Doors struct {
	queue  *queue.Queue
	runs   *Runs
	signal Signal

	mu   sync.Mutex
	open map[string]*Door
}

// NewDoors returns doors none of which is open.
func NewDoors(q *queue.Queue, runs *Runs, signal Signal) *Doors {
	return &Doors{queue: q, runs: runs, signal: signal}
}

// Open opens the door of a job that is about to be queued. It must be closed.
func (ds *Doors) Open(key string) *Door {
	door := &Door{doors: ds, key: key, known: make(chan struct{}), next: make(chan struct{}, 1), answered: make(chan struct{})}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.open == nil {
		ds.open = map[string]*Door{}
	}
	ds.open[key] = door
	return door
}

// of returns the open door of a job, or nil. All methods that a run calls may be called on nil.
func (ds *Doors) of(key string) *Door {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	return ds.open[key]
}

// Accepted reports whether this hub has accepted the job and its client may still be waiting.
func (ds *Doors) Accepted(key string) bool { return ds.of(key) != nil }

// Settle says that some hub has given the job to an instance, or that it has ended.
func (ds *Doors) Settle(key string) { ds.of(key).settle(nil) }

// maxAsking bounds the wait for all the instances asked about one job, as a multiple of the
// patience with each.
const maxAsking = 10

// Wait returns when an instance has taken or refused the job, when no idle one is left that could
// take it, or after patience with each of the instances that are asked in turn. The job must be
// queued by then. The nodeErrors are what the instance said about a prompt of which it runs only a
// part; nil if it said nothing. queue.Queue.Admit knows for certain which of these it was.
func (d *Door) Wait(ctx context.Context, patience time.Duration) (nodeErrors []byte) {
	d.mu.Lock()
	d.waited = true
	d.mu.Unlock()
	d.doors.signal.Wake()
	ctx, cancel := context.WithTimeout(ctx, maxAsking*patience)
	defer cancel()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case <-d.next:
			timer.Reset(patience)
			continue
		case <-d.known:
		case <-timer.C:
		case <-ctx.Done():
		}
		waiting = false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.nodeErrors
}

// another says that an instance has refused the job and another one is being asked.
func (d *Door) another() {
	if d == nil {
		return
	}
	select {
	case d.next <- struct{}{}:
	default:
	}
}

// answerGap is the minimum time between the answer and the first message of the run. They come over
// two connections, and a busy client may read both at once, the message first. A single ComfyUI
// takes one to three milliseconds.
const answerGap = 3 * time.Millisecond

// Close says that the client has its answer: messages of the run may follow after a moment. It may
// be called twice.
func (d *Door) Close() {
	if d.closed.CompareAndSwap(false, true) {
		time.AfterFunc(answerGap, d.leave)
	}
}

func (d *Door) leave() {
	d.doors.mu.Lock()
	defer d.doors.mu.Unlock()
	if d.doors.open[d.key] == d {
		delete(d.doors.open, d.key)
	}
	close(d.answered)
}

// settle says that an instance has taken or refused the job.
func (d *Door) settle(nodeErrors []byte) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.heard {
		d.heard, d.nodeErrors = true, nodeErrors
		close(d.known)
	}
}

// Awaited returns the doors at which somebody is waiting for an instance to be asked.
func (ds *Doors) Awaited() []*Door {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	var out []*Door
	for _, door := range ds.open {
		door.mu.Lock()
		if door.waited && !door.heard {
			out = append(out, door)
		}
		door.mu.Unlock()
	}
	return out
}

// Dismiss ends the wait for jobs that no instance got in a pass that could have given them one:
// others came first, so their clients are answered at once. A job that an instance gave back during
// the pass has its turn in the next one.
func (ds *Doors) Dismiss(ctx context.Context, doors []*Door) {
	for _, door := range doors {
		if ds.runs.Get(door.key) != nil {
			continue
		}
		j, err := ds.queue.Get(ctx, door.key)
		switch {
		case err != nil:
			door.settle(nil)
		case j.State != job.Queued || ds.runs.Get(door.key) != nil:
		case door.queuedSince(j.Fence):
			door.settle(nil)
		default:
			ds.signal.Wake()
		}
	}
}

// queuedSince reports whether the job was seen in the queue with this fence before: no instance had
// it in between.
func (d *Door) queuedSince(fence int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.fence == fence
	d.fence = fence
	return known
}

// maxAnswering bounds the wait for a hub to answer its client.
const maxAnswering = time.Second

// taken says that the instance has the job and waits until its client has been told: several
// clients lose a prompt whose messages come before its id.
func (d *Door) taken(ctx context.Context, nodeErrors []byte) {
	if d == nil {
		return
	}
	d.settle(nodeErrors)
	timer := time.NewTimer(maxAnswering)
	defer timer.Stop()
	select {
	case <-d.answered:
	case <-timer.C:
	case <-ctx.Done():
	}
}
