package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/comfyhub/comfyhub/internal/comfysim"
	"github.com/comfyhub/comfyhub/internal/sim"
	"github.com/comfyhub/comfyhub/internal/sim/simsd"
)

// simulation is a number of simulated servers on consecutive ports.
type simulation struct {
	comfysim.Options
	logger *slog.Logger
}

// start runs the servers until stop is called or ctx ends.
func (s *simulation) start(ctx context.Context) (stop func(), urls []string, err error) {
	if s.Count < 1 || s.Count > 1000 {
		return nil, nil, fmt.Errorf("want 1 to 1000 simulated servers, not %d", s.Count)
	}
	c, err := s.config()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	stop = func() { cancel(); work.Wait() }
	for n := range s.Count {
		c.Name = fmt.Sprintf("sim-%d", n+1)
		server, err := s.server(c)
		if err != nil {
			stop()
			return nil, nil, err
		}
		listener, err := s.listen(ctx, s.Port+n)
		if err != nil {
			server.Close()
			stop()
			return nil, nil, err
		}
		urls = append(urls, "http://"+listener.Addr().String())
		work.Go(func() {
			defer server.Close()
			if err := server.Serve(ctx, listener); err != nil {
				s.logger.Error("a simulated server ended", "error", err)
			}
		})
	}
	return stop, urls, nil
}

// simulated is a simulated server.
type simulated interface {
	Serve(ctx context.Context, ln net.Listener) error
	Close()
}

func (s *simulation) server(c sim.Config) (simulated, error) {
	if !s.A1111 {
		return sim.New(c)
	}
	return ofA1111{simsd.New(simsd.Config{
		Models: c.Models["checkpoints"], Loras: c.Models["loras"], Logger: c.Logger, VRAM: c.VRAM,
		StepTime: scaled(c.StepTime, c.TimeScale), LoadTime: scaled(c.LoadTime, c.TimeScale),
	})}, nil
}

func scaled(d time.Duration, scale float64) time.Duration { return time.Duration(float64(d) * scale) }

// ofA1111 is a simulated A1111 server, which has nothing to close.
type ofA1111 struct{ *simsd.Server }

// Close implements simulated.
func (ofA1111) Close() {}

func (s *simulation) listen(ctx context.Context, port int) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) && s.AnyPort {
		s.logger.Info("the port is taken, using another", "port", port)
		listener, err = config.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("simulated server: %w", err)
	}
	return listener, nil
}

func (s *simulation) config() (sim.Config, error) {
	c := sim.Config{
		Version: s.Version, StepTime: s.StepTime, LoadTime: s.LoadTime, TimeScale: s.TimeScale, WorkPreview: s.WorkPreview,
		PreviewMethod: s.PreviewMethod, Models: map[string][]string{}, Logger: s.logger,
		DisableAssets: s.DisableAssets, DateBasedOutput: s.DateBasedOutput, FeatureFlags: s.FeatureFlags,
	}
	for _, flag := range s.FeatureFlags {
		if name, _, _ := strings.Cut(flag, "="); strings.TrimSpace(name) == "" {
			return c, fmt.Errorf("--feature-flag %q: want NAME=VALUE, such as show_signin_button=true", flag)
		}
	}
	vram, err := humanize.ParseBytes(s.VRAM)
	if err != nil || vram > 1<<50 {
		return c, fmt.Errorf("--vram %q: want a size such as 24GiB", s.VRAM)
	}
	c.VRAM = int64(vram)
	for _, m := range s.Models {
		folder, name, ok := strings.Cut(m, "/")
		if !ok || folder == "" || name == "" {
			return c, fmt.Errorf("--model %q: want FOLDER/NAME, such as checkpoints/sd.safetensors", m)
		}
		c.Models[folder] = append(c.Models[folder], name)
	}
	c.Faults, err = parseFaults(s.Faults)
	return c, err
}

// parseFaults parses the --fault flags.
func parseFaults(list []string) (sim.Faults, error) {
	var f sim.Faults
	numbers := map[string]*int{
		"fail-every": &f.FailEvery, "oom-every": &f.OOMEvery, "hang-after-step": &f.HangAfterStep,
		"die-after-step": &f.DieAfterStep, "slow-http": &f.SlowHTTP,
	}
	switches := map[string]*bool{
		"mute": &f.Mute, "zombie": &f.Zombie, "prompt-error": &f.PromptError, "refuse-prompt": &f.RefusePrompt,
	}
	for _, item := range list {
		name, value, valued := strings.Cut(item, "=")
		if on := switches[name]; on != nil && !valued {
			*on = true
			continue
		}
		number := numbers[name]
		if number == nil {
			return f, fmt.Errorf("--fault %q: unknown", item)
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return f, fmt.Errorf("--fault %q: want a number after the =", item)
		}
		*number = n
	}
	return f, nil
}
