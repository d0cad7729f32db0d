package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// staticInstances are the instances that have no agent, which the hub itself watches. Those of
// A1111's API are reached through a facade.
type staticInstances struct {
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
	// facade is nil for a ComfyUI.
	facade *a1111.Instance
}

func newStaticInstances(h *Hub) *staticInstances {
	ctx, cancel := context.WithCancel(context.Background())
	return &staticInstances{hub: h, ctx: ctx, cancel: cancel, watched: map[string]watched{}}
}

// apply watches exactly the given addresses, those of ComfyUI servers and of A1111's.
func (s *staticInstances) apply(comfyUI, a1111 []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, w := range s.watched {
		wanted := comfyUI
		if w.facade != nil {
			wanted = a1111
		}
		if !slices.Contains(wanted, address) {
			w.stop()
			s.hub.fleet.RemoveStatic(w.name)
			delete(s.watched, address)
		}
	}
	var errs []error
	each := func(addresses []string, watch func(address string) error) {
		for _, address := range addresses {
			if _, ok := s.watched[address]; ok {
				continue
			}
			if err := watch(address); err != nil {
				errs = append(errs, fmt.Errorf("instance %s: %w", address, err))
			}
		}
	}
	each(comfyUI, s.watchComfyUI)
	each(a1111, s.watchA1111)
	s.hub.pages.Changed()
	return errors.Join(errs...)
}

func (s *staticInstances) watchComfyUI(address string) error {
	client, err := comfyui.NewClient(address, comfyui.Options{UserAgent: userAgent, Dial: s.hub.id.Dial()})
	if err != nil {
		return err
	}
	name, err := s.hub.fleet.AddStatic(address)
	if err != nil {
		return err
	}
	s.watch(address, watched{name: name}, client, comfyui.WatchOptions{})
	return nil
}

func (s *staticInstances) watchA1111(address string) error {
	name, err := fleet.StaticName(address)
	if err != nil {
		return err
	}
	dir, err := s.hub.workers.folder()
	if err != nil {
		return err
	}
	facade, err := a1111.Open(address, a1111.Options{Dir: dir, Logger: s.hub.log().With("instance", name), Dial: s.hub.id.Dial()})
	if err != nil {
		return err
	}
	client, err := comfyui.NewClient("http://a1111", comfyui.Options{UserAgent: userAgent, Dial: facade.Dial})
	if err == nil {
		_, err = s.hub.fleet.AddA1111(address)
	}
	if err != nil {
		facade.Close()
		return err
	}
	s.watch(address, watched{name: name, facade: facade}, client, comfyui.WatchOptions{ObjectInfoEvery: a1111.LearnEvery})
	return nil
}

// watch reports what an instance is doing until it is no longer wanted.
func (s *staticInstances) watch(address string, w watched, client *comfyui.Client, o comfyui.WatchOptions) {
	o.Logger = s.hub.log()
	var ctx context.Context
	ctx, w.stop = context.WithCancel(s.ctx)
	s.watched[address] = w
	s.work.Go(func() {
		defer client.Close()
		if w.facade != nil {
			defer w.facade.Close()
		}
		before := "" // what it could run
		comfyui.Watch(ctx, client, o, func(o comfyui.Observation) {
			report := describe(w.name, address, o)
			if w.facade != nil {
				report.Kind = fleet.KindA1111
			}
			s.hub.fleet.Observe(report)
			if before != "" && o.ObjectInfoHash != "" && o.ObjectInfoHash != before {
				s.hub.dispatch.Discovery.Relearn(w.name)
			}
			before = cmp.Or(o.ObjectInfoHash, before)
		})
	})
}

// dialer connects to the facade of an instance.
func (s *staticInstances) dialer(name string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		s.mu.Lock()
		var facade *a1111.Instance
		for _, w := range s.watched {
			if w.name == name {
				facade = w.facade
			}
		}
		s.mu.Unlock()
		if facade == nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return facade.Dial(ctx, network, address)
	}
}

func (s *staticInstances) close() {
	s.cancel()
	s.work.Wait()
}

// userAgent is how the hub identifies itself to instances.
const userAgent = "ComfyHub/" + config.Version

// describe turns what the hub itself has observed about an instance into the report that an agent
// would have sent.
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
