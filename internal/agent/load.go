package agent

import (
	"context"
	"errors"
	"time"
)

const (
	// busyPercent is the utilization from which a GPU counts as used.
	busyPercent = 50
	// busySamples and freeSamples in a row decide: a desktop that redraws for a
	// moment is no reason to stop using an instance.
	busySamples, freeSamples = 3, 2
	// settle is how long a server must have been idle before the load of its GPU is
	// attributed to somebody else.
	settle = 10 * time.Second
	// useStep is the step in which the use of a GPU by others is told, in percent.
	useStep = 10
	// blindAfter is how long what was last seen of the GPUs counts.
	blindAfter = 30 * time.Second
	// lookMost is how long a look is waited for, and lookEnd once the agent stops.
	lookMost, lookEnd = 2 * sampleEvery, time.Second
)

var errLookHangs = errors.New("the last question has no answer yet")

// gpuLoad decides from samples which GPUs other programs use.
type gpuLoad struct{ gpus map[string]*gpuSamples }

type gpuSamples struct {
	high, low int // samples in a row
	taken     bool
}

// sample handles one sample; quiet reports whether our own servers leave a GPU
// idle. It returns the GPUs that are used by others.
func (l *gpuLoad) sample(use map[string]int, quiet func(gpu string) bool) map[string]bool {
	if l.gpus == nil {
		l.gpus = map[string]*gpuSamples{}
	}
	taken := map[string]bool{}
	for gpu, percent := range use {
		s := l.gpus[gpu]
		if s == nil || !quiet(gpu) {
			s = &gpuSamples{}
			l.gpus[gpu] = s
		}
		switch {
		case !quiet(gpu): // it is our own work
		case percent >= busyPercent:
			s.high, s.low = s.high+1, 0
			s.taken = s.taken || s.high >= busySamples
		default:
			s.high, s.low = 0, s.low+1
			s.taken = s.taken && s.low < freeSamples
		}
		taken[gpu] = s.taken
	}
	return taken
}

// watchLoad samples the GPUs until ctx ends.
func (a *agent) watchLoad(ctx context.Context, look sampler) {
	var load gpuLoad
	look = bounded(look)
	last, blind := time.Now(), false
	every(ctx, sampleEvery, func() {
		s, err := look(ctx)
		switch {
		case err == nil:
			last, blind = time.Now(), false
			if a.servers.setLoad(s, &load, theProcesses()) {
				a.servers.hear.Push(true)
			}
		case blind || ctx.Err() != nil:
		case time.Since(last) < blindAfter:
			a.log.Debug("cannot read the use of the GPUs", "error", err)
		default:
			blind, load = true, gpuLoad{}
			a.log.Warn("cannot read the use of the GPUs any more; what other programs do there does not count until that works again", "error", err)
			if a.servers.clearLoad() {
				a.servers.hear.Push(true)
			}
		}
	})
}

// bounded makes a look one that ends: the kernel may keep a process that has to do with a broken
// GPU for ever. While one hangs there is no other.
func bounded(look sampler) sampler {
	type answer struct {
		sample gpuSample
		err    error
	}
	looking := make(chan struct{}, 1)
	return func(ctx context.Context) (gpuSample, error) {
		select {
		case looking <- struct{}{}:
		default:
			return gpuSample{}, errLookHangs
		}
		answers := make(chan answer, 1)
		go func() {
			s, err := look(ctx)
			<-looking
			answers <- answer{s, err}
		}()
		patience := time.NewTimer(lookMost)
		defer patience.Stop()
		defer context.AfterFunc(ctx, func() { patience.Reset(lookEnd) })()
		select {
		case a := <-answers:
			return a.sample, a.err
		case <-patience.C:
			return gpuSample{}, errLookHangs
		}
	}
}

// clearLoad forgets what others do on the GPUs, and reports whether that changes anything.
func (s *servers) clearLoad() (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.list {
		changed = changed || i.load != "" || i.at.others != 0
		i.load, i.at.others, i.at.use = "", 0, 0
	}
	return changed
}

// setLoad records a sample and reports whether it changes something that hubs must know at
// once.
func (s *servers) setLoad(sample gpuSample, load *gpuLoad, p processes) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := make([]placement, len(s.list))
	for n, i := range s.list {
		before[n] = i.at
		i.at = i.place(sample, p)
		changed = changed || i.at.id != before[n].id
	}
	quiet := func(gpu string) bool {
		for _, i := range s.list {
			if i.at.id == gpu && !(i.seen.Idle() && time.Since(i.seen.Since) >= settle) {
				return false
			}
		}
		return true
	}
	use := map[string]int{}
	for _, c := range sample.cards {
		if c.use >= 0 {
			use[c.id] = c.use
		}
	}
	taken := load.sample(use, quiet)
	others := othersMemory(sample, s.list, p)
	for n, i := range s.list {
		i.at.others = others[i.at.id]
		if i.at.id != "" && quiet(i.at.id) {
			i.at.use = min(use[i.at.id], 100) / useStep * useStep
		}
		text := ""
		if taken[i.at.id] {
			text = "its GPU is used by another program"
		}
		if i.load != text {
			i.load, changed = text, true
		}
		if d := i.at.others - before[n].others; d >= othersEdge || d <= -othersEdge {
			changed = true
		}
	}
	return changed
}
