package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// work is the worker thread: it runs one prompt at a time until the process ends or
// a prompt kills it.
func (p *process) work() {
	defer close(p.workerDone)
	results := newResultCache(p.cfg.Cache, p.cfg.CacheSize)
	objects := newObjects()
	for {
		it, ok := p.queue.next()
		if !ok {
			return
		}
		if it != nil && !p.runItem(it, results, objects) {
			return
		}
		unload, free := p.queue.requested()
		if unload {
			p.memory.unloadAll()
		}
		if free {
			results = newResultCache(p.cfg.Cache, p.cfg.CacheSize)
			objects = newObjects()
		}
	}
}

// runItem runs a prompt to its end and publishes the result. It returns false if
// that killed the worker. The prompt then stays in the running list forever.
func (p *process) runItem(it *item, results *resultCache, objects *objects) (alive bool) {
	s := p.srv
	s.started.Add(1)
	s.mu.Lock()
	s.runs[it.id]++
	s.mu.Unlock()
	p.interrupted.Store(false)
	if it.extra == nil {
		p.halt() // iterating over None is not caught anywhere
		return false
	}
	client := clientOf(it)
	p.mu.Lock()
	p.client, p.running = client, it.id
	p.mu.Unlock()

	r, began := newRun(p, it, client, results, objects), time.Now()
	s.log.Debug("run starts", "prompt", it.id)
	if !r.execute() {
		p.halt()
		return false
	}
	p.mu.Lock()
	p.active, p.running = "", ""
	p.mu.Unlock()
	if p.worker.Err() != nil {
		return false
	}
	p.queue.done(it, r.entry())
	s.finished.Add(1)
	if client != nil {
		p.hub.publish(client, message("executing", dict("node", nil, "prompt_id", it.id)))
	}
	p.terminal.write(fmt.Sprintf("Prompt executed in %.2f seconds\n", time.Since(began).Seconds()))
	s.log.Debug("run ended", "prompt", it.id, "success", r.success)
	return true
}

// clientOf returns the client that receives the messages of a prompt, nil for
// everybody.
func clientOf(it *item) *string {
	v, _ := it.extra.Get("client_id")
	switch v := v.(type) {
	case nil, pyjson.Null:
		return nil
	case pyjson.String:
		s := string(v)
		return &s
	default:
		s := python.Str(v)
		return &s
	}
}

// checkpoint is where a run notices an interrupt or the death of its worker, and
// where faults that are counted in steps happen.
func (r *run) checkpoint() *exception {
	p := r.proc
	if p.interrupted.CompareAndSwap(true, false) {
		return interrupted()
	}
	if p.worker.Err() != nil {
		return workerDied()
	}
	f := p.srv.Fault()
	r.mu.Lock()
	r.steps++
	steps := r.steps
	r.mu.Unlock()
	if f.FailAfterStep > 0 && steps >= f.FailAfterStep {
		return raise("RuntimeError", "simulated fault")
	}
	if f.DieAfterStep > 0 && steps >= f.DieAfterStep {
		p.srv.mu.Lock()
		p.srv.faults.DieAfterStep = 0
		p.srv.mu.Unlock()
		p.srv.crash()
		<-p.life.Done()
		return workerDied()
	}
	if f.HangAfterStep > 0 && steps >= f.HangAfterStep {
		<-p.worker.Done()
		return workerDied()
	}
	return nil
}

const (
	kindInterrupted = "interrupted"
	kindWorkerDied  = "worker died"
)

func interrupted() *exception { return &exception{kind: kindInterrupted} }
func workerDied() *exception  { return &exception{kind: kindWorkerDied} }

// outOfMemory returns the exception that torch raises when the GPU is full.
func outOfMemory() *exception {
	return &exception{
		kind:    "torch.OutOfMemoryError",
		message: "Allocation on device ",
		tips:    "This error means you ran out of memory on your GPU.\n\nTIPS: If the workflow worked before you might have accidentally set the batch_size to a large number.",
	}
}

// pause waits for a simulated duration. As in a real node, the interrupt flag is
// not checked in the meantime.
func (r *run) pause(ctx context.Context, seconds float64) *exception {
	if r.proc.srv.clock.Sleep(ctx, secondsDuration(seconds)) != nil {
		return workerDied()
	}
	return nil
}
