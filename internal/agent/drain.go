package agent

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// drainTick is how often a stopping agent looks whether its servers have finished.
	drainTick = 100 * time.Millisecond
	// fetchPause is how long nobody must have fetched files before it leaves: hubs
	// fetch those of a run that has just ended.
	fetchPause = 2 * time.Second
)

// drain tells the hubs to send no more work, and waits until the servers have finished
// what hubs have sent and hubs have fetched the files. It ends early when the stop
// timeout is over, hurry is closed, or the agent stops serving; the runs go on then.
func (a *agent) drain(served <-chan error) error {
	a.servers.mu.Lock()
	a.servers.draining = true
	a.servers.mu.Unlock()
	if a.stopTimeout <= 0 || a.finished() {
		return nil
	}
	a.log.Info("waiting for running prompts to finish; a second signal stops the agent at once", "at_most", a.stopTimeout.String())
	a.servers.hear.Push(true)
	end := time.NewTimer(a.stopTimeout)
	defer end.Stop()
	tick := time.NewTicker(drainTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if a.finished() {
				return nil
			}
		case <-end.C:
			return nil
		case <-a.hurry:
			return nil
		case err := <-served:
			return err
		}
	}
}

// finished reports whether no hub has anything to lose if the agent leaves.
func (a *agent) finished() bool { return a.servers.idle() && a.door.fetches.quiet(fetchPause) }

// fetches are the requests by which hubs take runs in and out.
type fetches struct {
	mu    sync.Mutex
	open  int
	ended time.Time
}

// begin notes a request; call done at its end.
func (f *fetches) begin() (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open--
		f.ended = time.Now()
	}
}

// quiet reports whether there has been no request for so long.
func (f *fetches) quiet(since time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open == 0 && time.Since(f.ended) > since
}

// isFetch reports whether a request belongs to a run. Others, such as those of custom
// nodes, may wait for a person.
func isFetch(path string) bool {
	for _, prefix := range []string{"/view", "/history", "/upload/", "/prompt"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// secondSignal returns a channel that is closed when the process gets the second signal
// to stop; stop frees it.
func secondSignal() (second <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range 2 {
			select {
			case <-signals:
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	return ctx.Done(), func() { signal.Stop(signals); cancel() }
}
