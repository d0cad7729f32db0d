package agent

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// servers are those that the agent looks after, with what is seen of each. The hubs hear of each
// change that matters to them at once.
type servers struct {
	// hear is how hubs hear from the agent; nil while it still joins.
	hear announcer

	mu       sync.Mutex
	draining bool // the agent stops
	list     []*instance
}

// announcer tells hubs of the agent.
type announcer interface {
	// Push makes the agent's report known. edge means that it must arrive at once. It does
	// not block.
	Push(edge bool)
	// Leave tells the hubs that the agent stops.
	Leave(ctx context.Context) error
}

// instance is one server.
type instance struct {
	target
	client  *comfyui.Client
	handler http.Handler
	restart *restarter
	// tidier deletes output files that the hub keeps; nil if nothing does.
	tidier *tidier
	// facade presents a server that is no ComfyUI; nil for one that is.
	facade *facade

	// The mutex of the servers guards the rest.
	seen  comfyui.Observation
	at    placement
	load  string // what else uses its GPU
	asked asked
}

// all returns the servers that are known now.
func (s *servers) all() []*instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

// add adds a server.
func (s *servers) add(i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, i)
}

// observe records what a server does, and tells the hubs.
func (s *servers) observe(i *instance, o comfyui.Observation) {
	s.mu.Lock()
	before := i.seen
	i.seen = o
	i.asked.take(o)
	s.mu.Unlock()
	edge := before.Up != o.Up || before.Idle() != o.Idle() ||
		(before.Foreign > 0) != (o.Foreign > 0) || before.ObjectInfoHash != o.ObjectInfoHash
	s.hear.Push(edge)
}

func (s *servers) find(name string) *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.list {
		if i.name == name {
			return i
		}
	}
	return nil
}

// ask notes that a restart of a server was asked for, and tells the hubs: the death of
// its process is nobody's fault.
func (s *servers) ask(i *instance) {
	s.mu.Lock()
	i.asked.at, i.asked.boot = time.Now(), i.seen.Boot
	s.mu.Unlock()
	s.push()
}

// push tells the hubs.
func (s *servers) push() {
	if s.hear != nil { // nil while it still joins
		s.hear.Push(true)
	}
}

// unask takes that back: the restart was refused.
func (s *servers) unask(i *instance) {
	s.mu.Lock()
	i.asked.at = time.Time{}
	s.mu.Unlock()
	s.push()
}

// deliberate reports whether it is no accident that a server's process is not there.
func (s *servers) deliberate(i *instance) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining || i.asked.due()
}

// idle reports whether no server has anything to do for a hub.
func (s *servers) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.list, func(i *instance) bool { return i.seen.QueueRemaining > i.seen.Foreign })
}

// stopRestarts drops the restarts that are planned.
func (s *servers) stopRestarts() {
	s.mu.Lock()
	list := s.list
	s.mu.Unlock()
	for _, i := range list { // its lock is taken first
		i.restart.close()
	}
}

// report describes one server; base is the URL at which the agent serves.
func (i *instance) report(base string) fleet.InstanceReport {
	o := i.seen
	r := fleet.InstanceReport{
		Name: i.name, URL: base + comfyui.InstancePath + i.name, Kind: i.kind(),
		Up: o.Up, Reason: o.Reason,
		Queue: o.QueueRemaining, Foreign: o.Foreign, Load: i.load, OthersMemory: i.at.others, OthersUse: i.at.use,
		Running: o.Running, Job: o.RunningMark.Job, Fence: o.RunningMark.Fence,
		Version: o.Version.Text, GPU: o.GPU, GPUType: o.GPUType, VRAMTotal: o.VRAMTotal, VRAMFree: o.VRAMFree,
		ObjectInfo: o.ObjectInfoHash, Boot: o.Boot,
		Restarting: i.asked.due(), Restarted: i.asked.restarted != 0 && i.asked.restarted == o.Boot,
	}
	if i.direct != "" {
		r.URL, r.Direct = i.direct, true
	}
	if !o.Since.IsZero() {
		r.Since = o.Since.UnixMilli()
	}
	return r
}
