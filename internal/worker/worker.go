package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/facade"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

var (
	// ErrGone means that a worker was not heard of for too long, or that the hub stops.
	ErrGone = errors.New("worker: gone")
	// ErrNotHeld means that a worker does not hold the job that it names: its lease has
	// ended, the job has ended, or it was never given to it.
	ErrNotHeld = errors.New("worker: this worker does not hold the job: its lease has ended, or the job has")
	// ErrHolds means that a worker asks for a job while it holds one.
	ErrHolds = errors.New("worker: this worker holds a job already: complete it, or wait until its lease ends")
	// ErrBusy means that a worker makes too many requests at once.
	ErrBusy = errors.New("worker: too many requests at once")
	// ErrTooMany means that a machine has too many workers, or that they are too large.
	ErrTooMany = errors.New("worker: too many of the machine's")
	// ErrCancelled means that the job is not wanted any more.
	ErrCancelled = errors.New("worker: the job was cancelled")
)

// Options describe a worker.
type Options struct {
	// Dir is a folder for the files of its jobs, of its own.
	Dir string
	// ObjectInfo describes the node classes that it runs, as GET /object_info does.
	ObjectInfo []byte
	// Version is the version of ComfyUI that hubs should take it for.
	Version string
	// Device is the name of its GPU, empty for none.
	Device string
	// Silence is how long a worker without a job may go without asking for one before it is
	// gone. Default: 20 s.
	Silence time.Duration
	// Lease is how long a worker with a job may say nothing. Default: 60 s. A worker can
	// ask for another one with each job, up to [MaxLease].
	Lease time.Duration
}

const (
	defaultSilence = 20 * time.Second
	defaultLease   = time.Minute
	// MinLease is the shortest lease that a worker can ask for.
	MinLease = 5 * time.Second
	// MaxLease is the longest one.
	MaxLease = time.Hour
	// maxRequests bounds what a worker asks at once.
	maxRequests = 16
	// maxFiles and maxBytes bound the outputs of a job.
	maxFiles = 1000
	maxBytes = 8 << 30
)

// Worker is a program that fetches its jobs. It is safe for concurrent use.
//
// Many methods: one for each thing that it may say, all about the one job that it has.
type Worker struct {
	o      Options
	server *facade.Server

	mu sync.Mutex
	// task is the prompt that is to be run, nil for none.
	task *task
	// news is closed when there is another task.
	news chan struct{}
	// present counts the requests that the worker makes just now; alarm rings when it has
	// made none for too long.
	present int
	alarm   *time.Timer
	closed  bool
	gone    chan struct{}
}

// task is a prompt that a worker is to run, or runs.
type task struct {
	run *facade.Run
	ctx context.Context
	// held means that the worker has it.
	held  bool
	lease time.Duration
	files int
	// left is how many bytes its outputs may still have.
	left atomic.Int64
	done chan error
}

// New returns a worker that was just heard of.
func New(o Options) (*Worker, error) {
	if o.Silence == 0 {
		o.Silence = defaultSilence
	}
	if o.Lease == 0 {
		o.Lease = defaultLease
	}
	w := &Worker{o: o, news: make(chan struct{}), gone: make(chan struct{})}
	server, err := facade.New(w, o.Dir)
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	w.server = server
	w.alarm = time.AfterFunc(o.Silence, w.leave)
	return w, nil
}

// Gone is closed once the worker was not heard of for too long.
func (w *Worker) Gone() <-chan struct{} { return w.gone }

// leave gives a worker up.
func (w *Worker) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.present == 0 {
		w.giveUp()
	}
}

// giveUp closes gone, once. The caller holds the lock.
func (w *Worker) giveUp() {
	if !w.closed {
		w.closed = true
		close(w.gone)
	}
}

// Close ends the worker as if its machine had died: its job is given to another instance.
func (w *Worker) Close() {
	w.mu.Lock()
	w.giveUp()
	w.alarm.Stop()
	w.mu.Unlock()
	w.server.Close()
}

// Dial connects to the worker's facade, whatever the address.
func (w *Worker) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return w.server.Dial(ctx, network, address)
}

// enter notes that the worker makes a request; leaving must be called at its end. The error
// is [ErrGone] or [ErrBusy].
func (w *Worker) enter() (leaving func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, ErrGone
	}
	if w.present >= maxRequests {
		return nil, ErrBusy
	}
	w.present++
	w.alarm.Stop()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.present--; w.present > 0 || w.closed {
			return
		}
		patience := w.o.Silence
		if w.task != nil && w.task.held {
			patience = w.task.lease
		}
		w.alarm.Reset(patience)
	}, nil
}

// ObjectInfo implements [facade.Backend].
func (w *Worker) ObjectInfo() []byte { return w.o.ObjectInfo }

// About implements [facade.Backend].
func (w *Worker) About() facade.About {
	return facade.About{Version: w.o.Version, Device: w.o.Device}
}

// Execute implements [facade.Backend]: the prompt waits for the worker to fetch and to
// complete it. One that is interrupted ends once the worker has been told.
func (w *Worker) Execute(ctx context.Context, r *facade.Run) error {
	t := &task{run: r, ctx: ctx, lease: w.o.Lease, done: make(chan error, 1)}
	t.left.Store(maxBytes)
	w.mu.Lock()
	w.task = t
	close(w.news)
	w.news = make(chan struct{})
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.task = nil
		w.mu.Unlock()
	}()
	select {
	case err := <-t.done:
		return err
	case <-w.gone:
		<-ctx.Done() // the server closes: nobody must be told how the prompt ends
		return ErrGone
	case <-ctx.Done():
	}
	w.mu.Lock()
	if !t.held && w.task == t {
		w.end(t, ctx.Err())
	}
	w.mu.Unlock()
	select {
	case err := <-t.done: // it may have been completed just before
		return err
	case <-w.gone:
		return ctx.Err()
	}
}

// Job is what a worker is given.
type Job struct {
	// ID names the job and this attempt at it: one that is run again has another.
	ID string
	// Graph is the prompt, Extra its extra_data, Outputs the ids of its output nodes.
	Graph, Extra *pyjson.Object
	Outputs      []string
	// Inputs are the files that it names.
	Inputs []string
	// Lease is how long the worker may say nothing.
	Lease time.Duration
}

// Next returns the next job, and waits for one until ctx ends. lease is 0 for the default.
// The error is [ErrHolds], [ErrGone] or that of ctx.
func (w *Worker) Next(ctx context.Context, lease time.Duration) (Job, error) {
	leaving, err := w.enter()
	if err != nil {
		return Job{}, err
	}
	defer leaving()
	for {
		w.mu.Lock()
		news, t := w.news, w.task
		switch {
		case t == nil || t.ctx.Err() != nil && !t.held:
		case t.ctx.Err() != nil: // the worker has left it and was not told why
			w.end(t, t.ctx.Err())
		case t.held:
			w.mu.Unlock()
			return Job{}, ErrHolds
		default:
			t.held, t.lease = true, w.o.Lease
			if lease != 0 {
				t.lease = min(max(lease, MinLease), MaxLease)
			}
			w.mu.Unlock()
			return Job{ID: t.run.ID, Graph: t.run.Graph, Extra: t.run.Extra, Outputs: t.run.Outputs, Inputs: t.run.Inputs(), Lease: t.lease}, nil
		}
		w.mu.Unlock()
		select {
		case <-news:
		case <-w.gone:
			return Job{}, ErrGone
		case <-ctx.Done():
			return Job{}, ctx.Err()
		}
	}
}

// Return takes back a job whose worker did not get to know of it.
func (w *Worker) Return(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.task
	if t == nil || !t.held || t.run.ID != id {
		return
	}
	t.held = false
	if t.ctx.Err() != nil {
		w.end(t, t.ctx.Err())
		return
	}
	close(w.news)
	w.news = make(chan struct{})
}

// end tells Execute how its prompt has ended. The worker does not hold it any more. The
// caller holds the lock.
func (w *Worker) end(t *task, err error) {
	w.task = nil
	t.done <- err // once: nobody finds the task any more
}

// Holds reports whether the worker has a job.
func (w *Worker) Holds(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.task != nil && w.task.held && w.task.run.ID == id
}

// Idle reports whether the worker has no job at all.
func (w *Worker) Idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.task == nil
}

// holding returns the job that a worker names. The error is [ErrNotHeld], or [ErrCancelled],
// after which the worker does not hold it any more.
func (w *Worker) holding(id string) (*task, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.task
	switch {
	case t == nil || !t.held || t.run.ID != id:
		return nil, ErrNotHeld
	case t.ctx.Err() != nil:
		w.end(t, t.ctx.Err())
		return nil, ErrCancelled
	}
	return t, nil
}

// Progress is how far a node of a job is.
type Progress struct {
	Node       string
	Value, Max float64
}

// Renew starts the lease of a job over, and tells clients how far it is if p has a node.
// The error is [ErrCancelled], [ErrNotHeld] or [ErrGone].
func (w *Worker) Renew(id string, p Progress) error {
	return w.during(id, func(t *task) error {
		if p.Node != "" {
			t.run.Progress(p.Node, p.Value, p.Max)
		}
		return nil
	})
}

// Preview is [Worker.Renew] with a picture of what the job is doing, in JPEG.
func (w *Worker) Preview(id string, jpeg []byte) error {
	return w.during(id, func(t *task) error {
		t.run.Preview(jpeg)
		return nil
	})
}

// during does something with a job that the worker holds.
func (w *Worker) during(id string, do func(t *task) error) error {
	leaving, err := w.enter()
	if err != nil {
		return err
	}
	defer leaving()
	t, err := w.holding(id)
	if err != nil {
		return err
	}
	return do(t)
}

// Input opens an input file of a job, one of [Job.Inputs].
func (w *Worker) Input(id, name string) (file io.ReadCloser, err error) {
	err = w.during(id, func(t *task) error {
		file, err = t.run.Input(name)
		return err
	})
	return file, err
}
