package direct

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/comfyhub/comfyhub/internal/a1111"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/facade"
	"github.com/comfyhub/comfyhub/internal/fleet"
)

// Options are what the instances need of a hub.
type Options struct {
	Fleet *fleet.Registry
	// Folders are for the files of facades.
	Folders facade.Folders
	// Dial connects to instances. Nil: over TCP.
	Dial Dial
	Log  func() *slog.Logger
	// Changed is called when there are others, and Relearn with the name of one that can run something else
	// than before.
	Changed func()
	Relearn func(name string)
}

// Instances are those whose addresses are in the settings. Those of A1111's API are reached through a
// facade. They are safe for concurrent use.
type Instances struct {
	o      Options
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

// New returns no instances: Apply says which there are.
func New(o Options) *Instances {
	ctx, cancel := context.WithCancel(context.Background())
	return &Instances{o: o, ctx: ctx, cancel: cancel, watched: map[string]watched{}}
}

// Apply watches exactly the given addresses, those of ComfyUI servers and of A1111's.
func (s *Instances) Apply(comfyUI, a1111 []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, w := range s.watched {
		wanted := comfyUI
		if w.facade != nil {
			wanted = a1111
		}
		if !slices.Contains(wanted, address) {
			w.stop()
			s.o.Fleet.RemoveStatic(w.name)
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
	s.o.Changed()
	return errors.Join(errs...)
}

func (s *Instances) watchComfyUI(address string) error {
	client, err := comfyui.NewClient(address, comfyui.Options{UserAgent: config.UserAgent, Dial: s.o.Dial})
	if err != nil {
		return err
	}
	name, err := s.o.Fleet.AddStatic(address)
	if err != nil {
		return err
	}
	s.watch(address, watched{name: name}, client, comfyui.WatchOptions{})
	return nil
}

func (s *Instances) watchA1111(address string) error {
	name, err := fleet.StaticName(address)
	if err != nil {
		return err
	}
	dir, err := s.o.Folders.Make()
	if err != nil {
		return err
	}
	server, err := a1111.Open(address, a1111.Options{Dir: dir, Logger: s.o.Log().With("instance", name), Dial: s.o.Dial})
	if err != nil {
		return err
	}
	client, err := comfyui.NewClient("http://a1111", comfyui.Options{UserAgent: config.UserAgent, Dial: server.Dial})
	if err == nil {
		_, err = s.o.Fleet.AddA1111(address)
	}
	if err != nil {
		server.Close()
		return err
	}
	s.watch(address, watched{name: name, facade: server}, client, comfyui.WatchOptions{ObjectInfoEvery: a1111.LearnEvery})
	return nil
}

// watch reports what an instance is doing until it is no longer wanted.
func (s *Instances) watch(address string, w watched, client *comfyui.Client, o comfyui.WatchOptions) {
	o.Logger = s.o.Log()
	var ctx context.Context
	ctx, w.stop = context.WithCancel(s.ctx)
	s.watched[address] = w
	s.work.Go(func() {
		defer client.Close()
		kind, before := fleet.KindComfyUI, "" // what it could run
		if w.facade != nil {
			kind = fleet.KindA1111
			defer w.facade.Close()
		}
		comfyui.Watch(ctx, client, o, func(o comfyui.Observation) {
			s.o.Fleet.Observe(describe(kind, w.name, address, o))
			if before != "" && o.ObjectInfoHash != "" && o.ObjectInfoHash != before {
				s.o.Relearn(w.name)
			}
			before = cmp.Or(o.ObjectInfoHash, before)
		})
	})
}

// Dialer connects to the facade of an instance.
func (s *Instances) Dialer(name string) Dial {
	return Late(func() Dial {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, w := range s.watched {
			if w.name == name && w.facade != nil {
				return w.facade.Dial
			}
		}
		return nil
	})
}

// Close ends the watch.
func (s *Instances) Close() {
	s.cancel()
	s.work.Wait()
}
