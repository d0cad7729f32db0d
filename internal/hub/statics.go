package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// InstanceName is the name of an instance without an agent, by its URL.
func InstanceName(url string) (string, error) { return fleet.StaticName(url) }

// statics are the instances that have no agent: the hub itself watches them.
type statics struct {
	hub    *Hub
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	watched map[string]watched // by address
}

type watched struct {
	name string
	stop context.CancelFunc
}

func newStatics(h *Hub) *statics {
	ctx, cancel := context.WithCancel(context.Background())
	return &statics{hub: h, ctx: ctx, cancel: cancel, watched: map[string]watched{}}
}

// apply watches exactly the given addresses.
func (s *statics) apply(addresses []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	wanted := map[string]bool{}
	for _, address := range addresses {
		wanted[address] = true
		if _, ok := s.watched[address]; !ok {
			if err := s.watch(address); err != nil {
				errs = append(errs, fmt.Errorf("instance %s: %w", address, err))
			}
		}
	}
	for address, w := range s.watched {
		if !wanted[address] {
			w.stop()
			s.hub.fleet.RemoveStatic(w.name)
			delete(s.watched, address)
		}
	}
	return errors.Join(errs...)
}

func (s *statics) watch(address string) error {
	client, err := comfyui.NewClient(address, comfyui.Options{UserAgent: userAgent})
	if err != nil {
		return err
	}
	name, err := s.hub.fleet.AddStatic(address)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(s.ctx)
	s.watched[address] = watched{name: name, stop: stop}
	s.work.Go(func() {
		defer client.Close()
		before := "" // what it could run
		comfyui.Watch(ctx, client, comfyui.WatchOptions{Logger: s.hub.log()}, func(o comfyui.Observation) {
			s.hub.fleet.Observe(describe(name, address, o))
			if before != "" && o.ObjectInfoHash != "" && o.ObjectInfoHash != before {
				s.hub.dispatch.Relearn(name)
			}
			before = cmp.Or(o.ObjectInfoHash, before)
		})
	})
	return nil
}

func (s *statics) close() {
	s.cancel()
	s.work.Wait()
}

// userAgent is how instances see the hub.
const userAgent = "ComfyHub/" + Version

// describe turns what the hub itself has observed of an instance into the
// report that an agent would have sent.
func describe(name, url string, o comfyui.Observation) fleet.InstanceReport {
	r := fleet.InstanceReport{
		Name: name, URL: url, Direct: true, Kind: fleet.KindComfyUI,
		Up: o.Up, Reason: o.Reason,
		Queue: o.QueueRemaining, Foreign: o.Foreign,
		Running: o.Running, Job: o.RunningMark.Job, Fence: o.RunningMark.Fence,
		Version: o.Version.Text, GPU: o.GPU, GPUType: o.GPUType, VRAMTotal: o.VRAMTotal, VRAMFree: o.VRAMFree,
		ObjectInfo: o.ObjectInfoHash, Boot: o.Boot,
	}
	if !o.Since.IsZero() {
		r.Since = o.Since.UnixMilli()
	}
	return r
}
